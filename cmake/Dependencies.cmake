include_guard()
find_package(Threads REQUIRED)

# LLVM: ADT and Support only (StringRef, SmallVector, Expected, SHA256), linked statically.
find_package(LLVM REQUIRED CONFIG)
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} in ${LLVM_DIR}")
add_library(trigen_llvm INTERFACE)
target_include_directories(trigen_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(trigen_llvm INTERFACE LLVMSupport)

# SQLite, from the static archive, so that libtrigen.so carries its own hidden copy.
find_path(SQLITE_INCLUDE sqlite3.h REQUIRED)
find_library(SQLITE_STATIC NAMES libsqlite3.a REQUIRED)
add_library(trigen_sqlite INTERFACE)
target_include_directories(trigen_sqlite SYSTEM INTERFACE ${SQLITE_INCLUDE})
target_link_libraries(trigen_sqlite INTERFACE ${SQLITE_STATIC} Threads::Threads ${CMAKE_DL_LIBS} m)

# zstd, from the static archive: the cache packs its blobs.
find_path(ZSTD_INCLUDE zstd.h REQUIRED)
find_library(ZSTD_STATIC NAMES libzstd.a REQUIRED)
add_library(trigen_zstd INTERFACE)
target_include_directories(trigen_zstd SYSTEM INTERFACE ${ZSTD_INCLUDE})
target_link_libraries(trigen_zstd INTERFACE ${ZSTD_STATIC})

# libsodium, from the static archive: the signatures of cache files.
find_path(SODIUM_INCLUDE sodium.h REQUIRED)
find_library(SODIUM_STATIC NAMES libsodium.a REQUIRED)
add_library(trigen_sodium INTERFACE)
target_include_directories(trigen_sodium SYSTEM INTERFACE ${SODIUM_INCLUDE})
target_link_libraries(trigen_sodium INTERFACE ${SODIUM_STATIC})

find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
add_library(trigen_cli11 INTERFACE)
target_include_directories(trigen_cli11 SYSTEM INTERFACE ${CLI11_INCLUDE})

find_path(NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
add_library(trigen_json INTERFACE)
target_include_directories(trigen_json SYSTEM INTERFACE ${NLOHMANN_INCLUDE})

if(TRIGEN_TESTS)
  find_package(GTest REQUIRED)
endif()
