# Bundles the page view/web/NAME with ESBUILD into NAME.html beside OUT, one file without references to others, and writes
# its bytes into OUT as the C++ array psring::view::ARRAY.
set(web ${CMAKE_CURRENT_LIST_DIR}/web)

# bundled(VARIABLE ARGUMENT...): what esbuild prints for these arguments.
function(bundled variable)
  execute_process(COMMAND ${ESBUILD} ${ARGN} --minify --log-level=warning OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# base64_of(VARIABLE HEX): the base64 text of 32 bytes, whose last group has two of them.
function(base64_of variable hex)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(text)
  foreach(place RANGE 0 60 6)
    string(SUBSTRING "${hex}00" ${place} 6 group)
    foreach(shift 18 12 6 0)
      math(EXPR letter "(0x${group} >> ${shift}) & 63")
      string(SUBSTRING ${alphabet} ${letter} 1 letter)
      string(APPEND text "${letter}")
    endforeach()
  endforeach()
  string(REGEX REPLACE ".$" "=" text "${text}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

bundled(SCRIPT ${web}/${NAME}/main.js --bundle --format=iife --target=es2020 --charset=utf8 --legal-comments=none)
file(READ ${web}/style.css styles)
if(EXISTS ${web}/${NAME}/style.css)
  file(READ ${web}/${NAME}/style.css own)
  string(APPEND styles "${own}")
endif()
file(WRITE ${OUT}.css "${styles}")
bundled(STYLE ${OUT}.css)
file(REMOVE ${OUT}.css)

# A page holds its data, but for the live one, which asks its own server.
set(TITLE "psring ${NAME}")
set(DATA "<script type=\"application/json\" id=\"data\">__PSRING_DATA__</script>\n")
set(connect)
if(NAME STREQUAL live)
  set(DATA)
  set(connect "; connect-src 'self'")
endif()

# The policy lets the browser run this script and nothing else, and load nothing but a live page's states.
string(SHA256 hash "${SCRIPT}")
base64_of(hash ${hash})
set(POLICY "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-${hash}'${connect}")

file(READ ${web}/page.html page)
foreach(part POLICY TITLE STYLE DATA SCRIPT)  # the script last: it may hold any text
  string(REPLACE "__${part}__" "${${part}}" page "${page}")
endforeach()
get_filename_component(folder ${OUT} DIRECTORY)
file(WRITE ${folder}/${NAME}.html "${page}")
string(HEX "${page}" bytes)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "#include <psring/view/page_bytes.h>\n\nnamespace psring::view {\n
const unsigned char ${ARRAY}[] = {${bytes}};
const std::size_t ${ARRAY}Bytes = sizeof(${ARRAY});\n
}  // namespace psring::view\n")
