# Writes FILE as the bytes of the C++ array psring::view::NAME into OUT.
file(READ ${FILE} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "#include <psring/view/page_bytes.h>\n\nnamespace psring::view {\n
const unsigned char ${NAME}[] = {${bytes}};
const std::size_t ${NAME}Bytes = sizeof(${NAME});\n
}  // namespace psring::view\n")
