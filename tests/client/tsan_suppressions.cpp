// libzmq is not built for ThreadSanitizer, which therefore does not see how it hands a message from
// one thread to another. Races within our own code are still found.
#if defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__
#endif
#endif
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libzmq.so\ncalled_from_lib:libzmq.so\n";
}
#endif
