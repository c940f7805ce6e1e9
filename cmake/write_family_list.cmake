# Run at build time by TriptychModels.cmake: the *.cc of FOLDER -> OUTPUT, written only when it changes.
file(GLOB files ${FOLDER}/*.cc)
list(FILTER files EXCLUDE REGEX "_(test|bench)\\.cc$")
set(names)
foreach(file IN LISTS files)
  file(STRINGS ${file} lines REGEX "^void register_[a-z0-9_]+\\(ModelRegistry& [a-z_]+\\) {")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^void register_([a-z0-9_]+).*" "\\1" name "${line}")
    list(APPEND names ${name})
  endforeach()
endforeach()
list(SORT names)
set(declarations)
set(calls)
foreach(name IN LISTS names)
  string(APPEND declarations "void register_${name}(ModelRegistry& registry);\n")
  string(APPEND calls "  register_${name}(registry);\n")
endforeach()
if(NOT names)
  set(calls "  (void)registry;\n")
endif()
set(text "// Generated; see cmake/TriptychModels.cmake.
#include \"models/model.h\"

namespace triptych {

${declarations}
void register_all_families(ModelRegistry& registry);
void register_all_families(ModelRegistry& registry) {
${calls}}

}  // namespace triptych
")
set(before)
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
