# 64-bit ARM from another machine: Debian's cross compiler, libraries in the folder that scripts/setup_aarch64.sh makes, tests
# under qemu-user, whose default processor has every instruction set; the environment variable QEMU_CPU names another
# (qemu-aarch64-static -cpu help).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(triptych_sysroot ${CMAKE_CURRENT_LIST_DIR}/../build/sysroot-aarch64 ABSOLUTE)
if(DEFINED ENV{TRIPTYCH_SYSROOT})
  get_filename_component(triptych_sysroot $ENV{TRIPTYCH_SYSROOT} ABSOLUTE)
endif()
set(CMAKE_SYSROOT ${triptych_sysroot})
set(CMAKE_FIND_ROOT_PATH ${triptych_sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${triptych_sysroot})
set(ENV{PKG_CONFIG_LIBDIR} ${triptych_sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig:${triptych_sysroot}/usr/share/pkgconfig)

find_program(TRIPTYCH_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(TRIPTYCH_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TRIPTYCH_QEMU} -L ${triptych_sysroot})
endif()
