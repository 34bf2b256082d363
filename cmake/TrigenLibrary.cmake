include_guard()

# A fault in what reads strangers' files ends the process instead of running on: canaries on stacks, checked copies, tables of functions
# that are read-only once they are bound, and indirect calls that land on marked places (CET, BTI), where compiler and machine have them.
set(TRIGEN_HARDENING -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND TRIGEN_HARDENING -fcf-protection)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
  list(APPEND TRIGEN_HARDENING -mbranch-protection=standard)
endif()

# Programs full of checks are large, and LLVM's linker makes them in a fifth of the time.
if(TRIGEN_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld TRIGEN_LLD)
  if(TRIGEN_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# trigen_options(<target>): warnings, hardening or sanitizers, and section flags that every target of the project shares. With sanitizers
# no section for each function: of code that is not optimised these are a third of an object's bytes and a tenth of its time.
function(trigen_options target)
  set(sections -ffunction-sections -fdata-sections)
  if(TRIGEN_SANITIZE)
    set(sections "")
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter ${sections})
  # GCC 12 warns of the standard library's own strings where it reads them from a precompiled header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
  if(TRIGEN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
                           $<$<CXX_COMPILER_ID:Clang>:-D__SANITIZE_ADDRESS__>)  # as GCC has it
    # Precompiled headers made again are the same bytes, or ccache finds nothing that was compiled with the ones before.
    target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  else()
    target_compile_options(${target} PRIVATE "$<$<NOT:$<CONFIG:Debug>>:${TRIGEN_HARDENING}>")
    target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now)
  endif()
endfunction()

# The headers from outside the project that most sources include, parsed once and not by each of some 200 sources (which took three
# quarters of their time). None of the project's own: a change of one would build everything again.
set(TRIGEN_PRECOMPILED
  <algorithm> <array> <atomic> <cmath> <cstdint> <cstdio> <cstdlib> <cstring> <fstream> <functional> <map> <memory> <mutex> <optional>
  <set> <sstream> <string> <thread> <utility> <vector>
  <llvm/ADT/ArrayRef.h> <llvm/ADT/SmallVector.h> <llvm/ADT/StringExtras.h> <llvm/ADT/StringRef.h> <llvm/ADT/Twine.h>
  <llvm/Support/Error.h>)

# trigen_precompiled(<target> <from>): <target> uses <from>'s precompiled headers; both must be compiled with the same options.
function(trigen_precompiled target from)
  if(TRIGEN_PCH)
    target_precompile_headers(${target} REUSE_FROM ${from})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # ccache follows the headers
  endif()
endfunction()

# trigen_unity(<target>): where TRIGEN_UNITY asks for it, up to 16 of the target's sources are one translation unit. Names of a
# source's own (anonymous namespaces) must not meet in it.
function(trigen_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TRIGEN_UNITY} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

# trigen_library(<folder> [HOT] SOURCES <file>... DEPENDS <target>...)
# A static library trigen_<folder>. Its headers are included from the project's root: #include "generator/problem.h".
# HOT: where tests spend their time. The sanitizers' build optimises these alone (with precompiled headers of their own, because options
# differ): optimising a source that is full of checks takes three times as long as compiling it.
function(trigen_library folder)
  cmake_parse_arguments(ARG "HOT" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(trigen_${folder} STATIC ${ARG_SOURCES})
  target_include_directories(trigen_${folder} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(trigen_${folder} PUBLIC ${ARG_DEPENDS})
  trigen_options(trigen_${folder})
  if(ARG_HOT AND TRIGEN_SANITIZE)
    target_compile_options(trigen_${folder} PRIVATE -O2)
    if(TRIGEN_PCH)
      target_precompile_headers(trigen_${folder} PRIVATE ${TRIGEN_PRECOMPILED})
    endif()
  else()
    trigen_precompiled(trigen_${folder} trigen_headers)
  endif()
  trigen_unity(trigen_${folder})
endfunction()
