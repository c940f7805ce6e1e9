# Package of the installed library: find_package(triptych) gives triptych::triptych. What the library links is its own matter.
include(${CMAKE_CURRENT_LIST_DIR}/triptychTargets.cmake)
