# Contents of an installation: libtrigen.so, libtrigen.a, the emulated device beside them, headers, find_package(trigen)
# and pkg-config files, licences, the guides to the interface and the examples.
include_guard()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS trigen EXPORT trigen-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET trigen_emulator)
  install(TARGETS trigen_emulator LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endif()
# The compiler that scripts/setup.sh brought, where the library looks for one. Neither packages nor the wheel have it.
install(DIRECTORY ${CMAKE_BINARY_DIR}/nvrtc/nvidia DESTINATION ${CMAKE_INSTALL_LIBDIR}/trigen/nvrtc COMPONENT compiler OPTIONAL
  FILES_MATCHING PATTERN "libnvrtc*.so*" PATTERN "*.alt.*" EXCLUDE PATTERN include EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/runtime/include/trigen/
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trigen COMPONENT development)

install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
if(EXISTS ${CMAKE_SOURCE_DIR}/THIRD_PARTY_NOTICES AND NOT TRIGEN_PACKAGES)  # two packages may not hold one file
  install(FILES ${CMAKE_SOURCE_DIR}/THIRD_PARTY_NOTICES DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
endif()
# in the repository's folders, so that their links to each other and to the examples hold
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.md" PATTERN decisions EXCLUDE PATTERN experiments EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development
  PATTERN python EXCLUDE PATTERN __pycache__ EXCLUDE)

# Libraries that go with libtrigen.a: the C++ library, and those that LLVM's Support names (zlib, where LLVM has it).
set(TRIGEN_STATIC_LIBRARIES stdc++ m dl pthread)
get_target_property(llvm_needs LLVMSupport INTERFACE_LINK_LIBRARIES)
if(llvm_needs MATCHES "ZLIB|[/;]libz|(^|;)z(;|$)")
  list(APPEND TRIGEN_STATIC_LIBRARIES z)
endif()
list(TRANSFORM TRIGEN_STATIC_LIBRARIES PREPEND -l OUTPUT_VARIABLE TRIGEN_STATIC_FLAGS)
list(JOIN TRIGEN_STATIC_FLAGS " " TRIGEN_STATIC_FLAGS)
set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/trigen)
install(EXPORT trigen-targets NAMESPACE trigen:: DESTINATION ${package_directory} COMPONENT development)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/trigenConfig.cmake.in
  ${CMAKE_BINARY_DIR}/package/trigenConfig.cmake INSTALL_DESTINATION ${package_directory})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/trigenConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/trigenConfig.cmake ${CMAKE_BINARY_DIR}/package/trigenConfigVersion.cmake
  DESTINATION ${package_directory} COMPONENT development)

# The prefix of trigen.pc is relative to the file, so that an installation may be moved.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
# trigen-static: `pkg-config --static` adds libraries and takes none away, so with trigen alone the linker takes libtrigen.so.
set(pc_files trigen.pc)
if(TARGET trigen_static)
  list(APPEND pc_files trigen-static.pc)
endif()
foreach(file ${pc_files})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${file}.in ${CMAKE_BINARY_DIR}/package/${file} @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/package/${file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()
