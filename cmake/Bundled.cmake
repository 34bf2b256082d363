# LLVM's Support, SQLite, zstd and libsodium from their sources, with the compiler of this build: for a target whose distribution has none of them
# (scripts/portable.sh: wheels and packages for an old glibc). TRIGEN_SOURCES is what scripts/portable_sources.sh unpacks: llvm/, sqlite/,
# zstd/, sodium/, and include/ with the libraries that are headers alone. Included by Dependencies.cmake in place of the search for installed ones.
include_guard()
set(CLI11_INCLUDE ${TRIGEN_SOURCES}/include CACHE PATH "")
set(NLOHMANN_INCLUDE ${TRIGEN_SOURCES}/include CACHE PATH "")

# LLVM's configuration headers, from its own templates, for a glibc of 2.28 or later.
function(trigen_configure_llvm version)
  string(REGEX MATCH "([0-9]+)\\.([0-9]+)\\.([0-9]+)" LLVM_VERSION ${version})
  set(LLVM_VERSION_MAJOR ${CMAKE_MATCH_1})
  set(LLVM_VERSION_MINOR ${CMAKE_MATCH_2})
  set(LLVM_VERSION_PATCH ${CMAKE_MATCH_3})
  set(PACKAGE_VERSION ${version})
  set(PACKAGE_NAME LLVM)
  set(PACKAGE_STRING "LLVM ${version}")
  set(LLVM_HOST_TRIPLE ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
  set(LLVM_DEFAULT_TARGET_TRIPLE ${LLVM_HOST_TRIPLE})
  set(RETSIGTYPE void)
  set(LTDL_SHLIB_EXT .so)
  set(LLVM_PLUGIN_EXT .so)
  foreach(there
      LLVM_ENABLE_THREADS LLVM_HAS_ATOMICS LLVM_ON_UNIX HAVE_DECL_FE_ALL_EXCEPT HAVE_DECL_FE_INEXACT HAVE_DLFCN_H HAVE_DLOPEN HAVE_DLADDR
      HAVE_ERRNO_H HAVE_FCNTL_H HAVE_FENV_H HAVE_FUTIMENS HAVE_GETPAGESIZE HAVE_GETRLIMIT HAVE_GETRUSAGE HAVE_LIBPTHREAD
      HAVE_PTHREAD_GETNAME_NP HAVE_PTHREAD_SETNAME_NP HAVE_LINK_H HAVE_LSEEK64 HAVE_POSIX_SPAWN HAVE_PREAD HAVE_PTHREAD_GETSPECIFIC
      HAVE_PTHREAD_H HAVE_PTHREAD_MUTEX_LOCK HAVE_PTHREAD_RWLOCK_INIT HAVE_SBRK HAVE_SETENV HAVE_SETRLIMIT HAVE_SIGALTSTACK HAVE_SIGNAL_H
      HAVE_STRERROR HAVE_STRERROR_R HAVE_SYSCONF HAVE_SYS_IOCTL_H HAVE_SYS_MMAN_H HAVE_SYS_PARAM_H HAVE_SYS_RESOURCE_H HAVE_SYS_STAT_H
      HAVE_SYS_TIME_H HAVE_STRUCT_STAT_ST_MTIM_TV_NSEC HAVE_SYSEXITS_H HAVE_SYS_TYPES_H HAVE_TERMIOS_H HAVE_UNISTD_H HAVE_STD_IS_TRIVIALLY_COPYABLE)
    set(${there} 1)
  endforeach()
  foreach(name config.h llvm-config.h abi-breaking.h)
    configure_file(${TRIGEN_SOURCES}/llvm/include/llvm/Config/${name}.cmake ${CMAKE_BINARY_DIR}/bundled/llvm/Config/${name})
  endforeach()
endfunction()

# The part of Support that trigen's own headers reach, and what that part names in turn.
set(support_sources
  ABIBreak APFloat APInt ARMTargetParser CommandLine ConvertUTF ConvertUTFWrapper CrashRecoveryContext Debug DebugCounter Errno Error ErrorHandling
  FoldingSet FormatVariadic GraphWriter Hashing Host MD5 ManagedStatic MemAlloc MemoryBuffer NativeFormatting Path Process Program
  RandomNumberGenerator SHA256 Signals Signposts SmallPtrSet SmallVector SourceMgr Statistic StringExtras StringMap StringRef StringSaver
  ThreadLocal Threading Timer Triple Twine TypeSize Unicode VersionTuple VirtualFileSystem WithColor YAMLParser raw_ostream xxhash)
list(TRANSFORM support_sources REPLACE "(.+)" "${TRIGEN_SOURCES}/llvm/lib/Support/\\1.cpp")
file(STRINGS ${TRIGEN_SOURCES}/llvm/VERSION llvm_version)
trigen_configure_llvm(${llvm_version})
message(STATUS "LLVM ${llvm_version}, SQLite, zstd and libsodium from ${TRIGEN_SOURCES}")
add_library(LLVMSupport STATIC ${support_sources})
target_include_directories(LLVMSupport SYSTEM PUBLIC ${CMAKE_BINARY_DIR}/bundled ${TRIGEN_SOURCES}/llvm/include)
target_compile_definitions(LLVMSupport PRIVATE _GNU_SOURCE)
target_link_libraries(LLVMSupport PUBLIC Threads::Threads ${CMAKE_DL_LIBS} m)

file(GLOB zstd_sources ${TRIGEN_SOURCES}/zstd/lib/common/*.c ${TRIGEN_SOURCES}/zstd/lib/compress/*.c ${TRIGEN_SOURCES}/zstd/lib/decompress/*.c)
add_library(trigen_zstd_static STATIC ${zstd_sources})
target_include_directories(trigen_zstd_static SYSTEM PUBLIC ${TRIGEN_SOURCES}/zstd/lib)
target_compile_definitions(trigen_zstd_static PRIVATE ZSTD_DISABLE_ASM ZSTD_MULTITHREAD)

add_library(trigen_sqlite_static STATIC ${TRIGEN_SOURCES}/sqlite/sqlite3.c)
target_include_directories(trigen_sqlite_static SYSTEM PUBLIC ${TRIGEN_SOURCES}/sqlite)
target_compile_definitions(trigen_sqlite_static PRIVATE
  SQLITE_THREADSAFE=1 SQLITE_OMIT_LOAD_EXTENSION HAVE_USLEEP=1 HAVE_FDATASYNC=1 HAVE_PREAD=1 HAVE_PWRITE=1 HAVE_GMTIME_R=1 HAVE_LOCALTIME_R=1
  HAVE_STRERROR_R=1 HAVE_MALLOC_USABLE_SIZE=1 HAVE_ISNAN=1)

# Portable C alone: what is asked of libsodium is a signature a file.
set(sodium_root ${TRIGEN_SOURCES}/sodium/src/libsodium)
file(GLOB_RECURSE sodium_sources ${sodium_root}/*.c)
file(STRINGS ${TRIGEN_SOURCES}/sodium/configure.ac sodium_versions REGEX "^(AC_INIT|SODIUM_LIBRARY_VERSION_M)")
string(REGEX MATCH "AC_INIT\\(\\[libsodium\\],\\[([0-9.]+)\\]" found "${sodium_versions}")
set(VERSION ${CMAKE_MATCH_1})
string(REGEX MATCH "SODIUM_LIBRARY_VERSION_MAJOR=([0-9]+)" found "${sodium_versions}")
set(SODIUM_LIBRARY_VERSION_MAJOR ${CMAKE_MATCH_1})
string(REGEX MATCH "SODIUM_LIBRARY_VERSION_MINOR=([0-9]+)" found "${sodium_versions}")
set(SODIUM_LIBRARY_VERSION_MINOR ${CMAKE_MATCH_1})
configure_file(${sodium_root}/include/sodium/version.h.in ${CMAKE_BINARY_DIR}/bundled/sodium/version.h @ONLY)
configure_file(${sodium_root}/include/sodium/export.h ${CMAKE_BINARY_DIR}/bundled/sodium/export.h COPYONLY)  # which it includes
add_library(trigen_sodium_static STATIC ${sodium_sources})
target_include_directories(trigen_sodium_static SYSTEM PUBLIC ${sodium_root}/include ${CMAKE_BINARY_DIR}/bundled
                           PRIVATE ${sodium_root}/include/sodium ${CMAKE_BINARY_DIR}/bundled/sodium)
target_compile_definitions(trigen_sodium_static
  PUBLIC SODIUM_STATIC
  PRIVATE CONFIGURED=1 _GNU_SOURCE NATIVE_LITTLE_ENDIAN=1 HAVE_TI_MODE=1 HAVE_PTHREAD=1 HAVE_WEAK_SYMBOLS=1 HAVE_ATOMIC_OPS=1 HAVE_C11_MEMORY_FENCES=1
          HAVE_SYS_MMAN_H=1 HAVE_SYS_RANDOM_H=1 HAVE_GETRANDOM=1 HAVE_EXPLICIT_BZERO=1 HAVE_MMAP=1 HAVE_MLOCK=1 HAVE_MADVISE=1 HAVE_MPROTECT=1
          HAVE_RAISE=1 HAVE_SYSCONF=1 HAVE_GETPID=1 HAVE_NANOSLEEP=1 HAVE_POSIX_MEMALIGN=1)

foreach(bundled LLVMSupport trigen_zstd_static trigen_sqlite_static trigen_sodium_static)
  target_compile_options(${bundled} PRIVATE -w -ffunction-sections -fdata-sections)
endforeach()
