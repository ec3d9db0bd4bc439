# cmake -D IN=FILE -D OUT=FILE.cpp -D HEADER=HEADER -D NAME=NAME -P EmbedText.cmake
# Makes a text file the constant penstock::NAME, which HEADER declares.
file(READ "${IN}" text)
file(WRITE "${OUT}" "#include \"${HEADER}\"\n\nnamespace penstock {\n\nconst char* const ${NAME} = R\"embedded(${text})embedded\";\n\n}  // namespace penstock\n")
