# Writes the list of model families: a call of register_<name>() for each file in src/models that defines it as
# "void register_<name>(ModelRegistry& registry)". Made at build time from the files present, so a family is one file.
file(GLOB triptych_families CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/models/*.cc)
list(FILTER triptych_families EXCLUDE REGEX "_(test|bench)\\.cc$")
get_target_property(triptych_models_type triptych_models TYPE)
if(NOT triptych_models_type STREQUAL "INTERFACE_LIBRARY")
  set(triptych_family_list ${PROJECT_BINARY_DIR}/generated/register_all_families.cc)
  add_custom_command(OUTPUT ${triptych_family_list}
    COMMAND ${CMAKE_COMMAND} -D FOLDER=${PROJECT_SOURCE_DIR}/src/models -D OUTPUT=${triptych_family_list}
            -P ${PROJECT_SOURCE_DIR}/cmake/write_family_list.cmake
    DEPENDS ${triptych_families} ${PROJECT_SOURCE_DIR}/cmake/write_family_list.cmake
    COMMENT "Listing the model families" VERBATIM)
  target_sources(triptych_models PRIVATE ${triptych_family_list})
endif()
