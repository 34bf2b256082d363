# Debian packages by CPack: libtrigen<major>.<minor> (the library and the emulated device), libtrigen-dev (headers, CMake and pkg-config
# files), trigen (the program). Made of what scripts/portable.sh builds, so that one package serves every distribution with its glibc.
include_guard()
set(TRIGEN_GLIBC "" CACHE STRING "The oldest glibc that the packages install on; empty: as dpkg-shlibdeps finds it")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trigen)
set(CPACK_PACKAGE_VENDOR trigen)
set(CPACK_PACKAGE_CONTACT "The trigen authors <trigen@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES OFF)  # stripped where they are linked: another machine's strip does not know them
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL library development program)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
else()
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE amd64)
endif()

set(library_package libtrigen${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
"libtrigen.so finds, makes and launches tuned kernels for causal token mixing
with learned weights. It needs NVIDIA's driver, and a filled cache or NVRTC; no
CUDA toolkit. The emulated device executes the kernels' PTX on the CPU.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtrigen-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
"The C interface of libtrigen.so and its C++ wrapper, with the files for CMake
and pkg-config.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME trigen)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS ${library_package})
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
"The trigen program tunes, checks, times and ships kernels, and says what a
machine lacks.")
if(TRIGEN_GLIBC)
  # Everything but glibc is inside. libc6 only: its libm, libdl and libpthread come with it.
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libc6 (>= ${TRIGEN_GLIBC})")
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "libc6 (>= ${TRIGEN_GLIBC})")
else()
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
file(WRITE ${CMAKE_BINARY_DIR}/package/triggers "activate-noawait ldconfig\n")
file(WRITE ${CMAKE_BINARY_DIR}/package/shlibs
  "libtrigen ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${library_package} (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/package/triggers ${CMAKE_BINARY_DIR}/package/shlibs)

foreach(component_package library=${library_package} development=libtrigen-dev program=trigen)
  string(REPLACE "=" ";" component_package ${component_package})
  list(GET component_package 0 component)
  list(GET component_package 1 package)
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright COMPONENT ${component})
  install(FILES ${CMAKE_SOURCE_DIR}/THIRD_PARTY_NOTICES ${CMAKE_SOURCE_DIR}/CHANGELOG.md
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()
include(CPack)
