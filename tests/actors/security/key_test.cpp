#include "actors/security/key.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

class KeyFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/keys-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static mode_t mode_of(const std::filesystem::path& file) {
    struct stat status {};
    return ::stat(file.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
  }
  std::filesystem::path write(const std::string& text, mode_t mode = 0600) {
    const auto file = folder_ / "some.key";
    std::ofstream(file, std::ios::trunc) << text;
    ::chmod(file.c_str(), mode);
    return file;
  }

  std::filesystem::path folder_;
};

// The example of rfc.zeromq.org/32 is eight bytes; here it is four times in a row.
TEST(Z85, IsThatOfTheSpecification) {
  const std::uint8_t example[8] = {0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B};
  Key key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = example[i % 8];
  EXPECT_EQ(z85_of(key), "HelloWorldHelloWorldHelloWorldHelloWorld");
  EXPECT_EQ(key_of_z85("HelloWorldHelloWorldHelloWorldHelloWorld").value(), key);
}

TEST(Z85, ThatIsNoKeyIsRefused) {
  const std::string good = z85_of(make_key_pair().public_key);
  for (const std::string& text :
       {std::string(), good.substr(1), good + "0", "\"" + good.substr(1), "#####" + good.substr(5)})
    EXPECT_EQ(key_of_z85(text).error().code, ErrorCode::kInvalidArgument) << text;
}

TEST(AKeyPair, IsAnotherEachTimeAndItsPublicKeyFollowsFromTheSecret) {
  const KeyPair one = make_key_pair(), other = make_key_pair();
  EXPECT_NE(one.secret_key, other.secret_key);
  EXPECT_EQ(public_key_of(one.secret_key), one.public_key);
}

TEST_F(KeyFiles, AreWrittenForTheirOwnerAloneWhateverTheUmask) {
  const mode_t before = ::umask(0);
  const auto made = write_key_files(folder_ / "a.key");
  ::umask(before);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(mode_of(folder_ / "a.key"), 0600u);
  EXPECT_EQ(mode_of(folder_ / "a.key.pub"), 0644u);
  const auto read = read_key_file(folder_ / "a.key");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->secret_key, made->secret_key);
  EXPECT_EQ(read->public_key, made->public_key);
}

TEST_F(KeyFiles, AreNeverOverwritten) {
  ASSERT_TRUE(write_key_files(folder_ / "a.key"));
  const auto first = read_key_file(folder_ / "a.key");
  EXPECT_EQ(write_key_files(folder_ / "a.key").error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(read_key_file(folder_ / "a.key")->secret_key, first->secret_key);
  // Nor when only the public one is there: the pair would not fit.
  std::filesystem::remove(folder_ / "a.key");
  EXPECT_EQ(write_key_files(folder_ / "a.key").error().code, ErrorCode::kAlreadyExists);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.key"));
}

TEST_F(KeyFiles, ThatOthersMayReadAreRefused) {
  const std::string key = z85_of(make_key_pair().secret_key) + "\n";
  EXPECT_TRUE(read_key_file(write(key, 0640)));
  for (const mode_t mode : {0644, 0604, 0660})
    EXPECT_EQ(read_key_file(write(key, mode)).error().code, ErrorCode::kDenied) << mode;
}

TEST_F(KeyFiles, ThatHoldSomethingElseAreRefused) {
  for (const char* text : {"", "\n", "not a key\n"})
    EXPECT_EQ(read_key_file(write(text)).error().code, ErrorCode::kInvalidArgument) << text;
  EXPECT_EQ(read_key_file(folder_ / "nothing").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_key_file(folder_).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
