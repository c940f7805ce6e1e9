# cmake --install: the program, the libraries, their headers and a CMake package (find_package(triptych)).
