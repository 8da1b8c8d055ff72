# Writes the files FILES (paths in the folder ROOT, separated by commas) into OUT, which includes HEADER and defines
# FUNCTION() in the namespace SPACE.
string(REPLACE "," ";" files "${FILES}")
set(arrays "")
set(table "")
foreach(file ${files})
  file(READ ${ROOT}/${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(MAKE_C_IDENTIFIER ${file} name)
  string(APPEND arrays "const char ${name}[] = {${bytes}};\n")
  string(APPEND table "    {\"${file}\", {${name}, sizeof(${name})}},\n")
endforeach()
file(WRITE ${OUT} "#include <${HEADER}>\n\nnamespace ${SPACE} {\nnamespace {\n
${arrays}
const psring::view::SourceText kTexts[] = {\n${table}};\n
}  // namespace\n
std::span<const psring::view::SourceText> ${FUNCTION}() { return kTexts; }\n
}  // namespace ${SPACE}\n")
