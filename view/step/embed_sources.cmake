# Writes the sources FILES (paths in the folder ROOT, separated by commas) into OUT, which defines source_texts().
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
file(WRITE ${OUT} "#include <psring/view/step/source_texts.h>\n\nnamespace psring::view {\nnamespace {\n
${arrays}
const SourceText kTexts[] = {\n${table}};\n
}  // namespace\n
std::span<const SourceText> source_texts() { return kTexts; }\n
}  // namespace psring::view\n")
