# Every outside library that the layers link, found as Debian packages install them; README lists each with its reason.
# Read by the build and, installed beside triptychConfig.cmake, by projects that link the installed libraries. Names of what
# was not found are left in triptych_missing.
set(triptych_missing)

macro(triptych_find package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    list(APPEND triptych_missing ${package})
  endif()
endmacro()

# pkg-config module -> imported target <namespace>::<name>
macro(triptych_find_module target module)
  string(REPLACE ":" "_" triptych_prefix ${target})
  if(PkgConfig_FOUND)
    pkg_check_modules(${triptych_prefix} QUIET IMPORTED_TARGET GLOBAL ${module})
  endif()
  if(NOT TARGET PkgConfig::${triptych_prefix})
    list(APPEND triptych_missing ${module})
  elseif(NOT TARGET ${target})
    add_library(${target} ALIAS PkgConfig::${triptych_prefix})
  endif()
endmacro()

triptych_find(Threads)
triptych_find(fmt)
triptych_find(spdlog)
triptych_find(nlohmann_json 3.10)
triptych_find(CLI11)
triptych_find(PNG)
triptych_find(JPEG)
triptych_find(GIF)
triptych_find(TIFF)
triptych_find(PkgConfig)
triptych_find_module(WebP::webp libwebp)
triptych_find_module(WebP::webpdemux libwebpdemux)
triptych_find_module(PCRE2::PCRE2 libpcre2-8)
triptych_find_module(utf8proc::utf8proc libutf8proc)
triptych_find_module(editline::editline libedit)
triptych_find_module(sodium::sodium libsodium)

# Not by pkg-config: newer packages of sentencepiece name modules there that only building it needs.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
mark_as_advanced(SENTENCEPIECE_INCLUDE_DIR SENTENCEPIECE_LIBRARY)
if(NOT SENTENCEPIECE_INCLUDE_DIR OR NOT SENTENCEPIECE_LIBRARY)
  list(APPEND triptych_missing sentencepiece)
elseif(NOT TARGET sentencepiece::sentencepiece)
  add_library(sentencepiece::sentencepiece UNKNOWN IMPORTED GLOBAL)
  set_target_properties(sentencepiece::sentencepiece PROPERTIES IMPORTED_LOCATION ${SENTENCEPIECE_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SENTENCEPIECE_INCLUDE_DIR})
endif()
string(REPLACE ";" ", " triptych_missing "${triptych_missing}")
