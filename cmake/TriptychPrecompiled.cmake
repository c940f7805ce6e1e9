# Precompiled headers: what most files of the layers include, and most tests. They hold headers of the standard library and of
# other projects alone, so that no change of a source makes them anew, and not nlohmann/json.hpp for the layers: it would make
# the header dearer for the many files that do not look into JSON than it makes the others cheaper.
# Files name every header that they use all the same (tools/check_includes.py): with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON, as
# scripts/tidy.sh has it, nothing else brings it.
set(triptych_headers <algorithm> <array> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map> <memory> <optional>
  <span> <string> <string_view> <utility> <vector> <fmt/core.h>)

# Makes the object library `name`, whose header targets of the same kind of code take by REUSE_FROM.
function(triptych_precompile name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/precompiled.cc CONTENT "// No code: the headers are what counts.\n")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/generated/precompiled.cc)
  target_link_libraries(${name} PRIVATE triptych_options triptych_flags fmt::fmt)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

triptych_precompile(triptych_precompiled ${triptych_headers})
if(TRIPTYCH_TESTS)
  triptych_precompile(triptych_precompiled_tests ${triptych_headers} <nlohmann/json.hpp> <gtest/gtest.h> <gmock/gmock.h>)
  target_link_libraries(triptych_precompiled_tests PRIVATE nlohmann_json::nlohmann_json GTest::gmock)
  # Tests are programs: code for a program is another kind than that for a library, which CMake would make here.
  set_target_properties(triptych_precompiled_tests PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(triptych_precompiled_tests PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE} ${TRIPTYCH_TEST_OPTIONS})
endif()

# ccache takes objects with a precompiled header only when it is told that their macros and times need no closer look, and
# when the compiler leaves a mark (GCC) or no time (clang) of the header.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(triptych_flags INTERFACE -fpch-preprocess)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(triptych_flags INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
endif()
