# What an installation holds: libtrigen.so, the emulated device beside it, headers, find_package(trigen) and pkg-config files.
include_guard()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS trigen EXPORT trigen-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET trigen_emulator)
  install(TARGETS trigen_emulator LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endif()
install(FILES ${CMAKE_SOURCE_DIR}/runtime/include/trigen/trigen.h ${CMAKE_SOURCE_DIR}/runtime/include/trigen/trigen.hpp
  ${CMAKE_SOURCE_DIR}/runtime/include/trigen/trigen_xla.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trigen COMPONENT development)

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
configure_file(${CMAKE_SOURCE_DIR}/cmake/trigen.pc.in ${CMAKE_BINARY_DIR}/package/trigen.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/trigen.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
