include_guard()
find_package(Threads REQUIRED)

option(TRIGEN_BUNDLED "Build LLVM's Support, SQLite, zstd and libsodium from TRIGEN_SOURCES, in place of the installed ones" OFF)
foreach(library llvm sqlite zstd sodium)
  add_library(trigen_${library} INTERFACE)
endforeach()
if(TRIGEN_BUNDLED)
  include(${CMAKE_CURRENT_LIST_DIR}/Bundled.cmake)
  target_link_libraries(trigen_llvm INTERFACE LLVMSupport)
  target_link_libraries(trigen_sqlite INTERFACE trigen_sqlite_static Threads::Threads ${CMAKE_DL_LIBS} m)
  target_link_libraries(trigen_zstd INTERFACE trigen_zstd_static)
  target_link_libraries(trigen_sodium INTERFACE trigen_sodium_static)
else()
  # LLVM: ADT and Support only (StringRef, SmallVector, Expected, SHA256), linked statically.
  find_package(LLVM REQUIRED CONFIG)
  message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} in ${LLVM_DIR}")
  target_include_directories(trigen_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
  target_link_libraries(trigen_llvm INTERFACE LLVMSupport)

  # SQLite, zstd (the cache packs its blobs) and libsodium (its signatures), from the static archives, so that libtrigen.so carries its own hidden copies.
  find_path(SQLITE_INCLUDE sqlite3.h REQUIRED)
  find_library(SQLITE_STATIC NAMES libsqlite3.a REQUIRED)
  target_include_directories(trigen_sqlite SYSTEM INTERFACE ${SQLITE_INCLUDE})
  target_link_libraries(trigen_sqlite INTERFACE ${SQLITE_STATIC} Threads::Threads ${CMAKE_DL_LIBS} m)
  find_path(ZSTD_INCLUDE zstd.h REQUIRED)
  find_library(ZSTD_STATIC NAMES libzstd.a REQUIRED)
  target_include_directories(trigen_zstd SYSTEM INTERFACE ${ZSTD_INCLUDE})
  target_link_libraries(trigen_zstd INTERFACE ${ZSTD_STATIC})

  # libsodium, from the static archive: the signatures of cache files.
  find_path(SODIUM_INCLUDE sodium.h REQUIRED)
  find_library(SODIUM_STATIC NAMES libsodium.a REQUIRED)
  target_include_directories(trigen_sodium SYSTEM INTERFACE ${SODIUM_INCLUDE})
  target_link_libraries(trigen_sodium INTERFACE ${SODIUM_STATIC})
endif()

find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
add_library(trigen_cli11 INTERFACE)
target_include_directories(trigen_cli11 SYSTEM INTERFACE ${CLI11_INCLUDE})

find_path(NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
add_library(trigen_json INTERFACE)
target_include_directories(trigen_json SYSTEM INTERFACE ${NLOHMANN_INCLUDE})

if(TRIGEN_TESTS AND TRIGEN_BUNDLED)
  # Another C++ library and perhaps another machine than the installed archive's.
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
elseif(TRIGEN_TESTS)
  find_package(GTest REQUIRED)
endif()
