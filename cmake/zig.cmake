# Toolchain file: zig's C and C++ compilers (PyPI's ziglang; clang, libc++ and the symbol lists of every glibc in one wheel) for a
# Linux of TRIGEN_ZIG_TARGET, such as x86_64-linux-gnu.2.28. TRIGEN_ZIG_TOOLS holds scripts that call them (scripts/portable.sh).
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TRIGEN_ZIG_TARGET TRIGEN_ZIG_TOOLS)
string(REGEX REPLACE "-.*" "" machine "${TRIGEN_ZIG_TARGET}")
if(NOT machine STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)  # else what is built runs here, and makes its man page
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${machine})
  # Programs of another machine run under qemu-user if present, as do their tests; QEMU_LD_PREFIX: a root of that one.
  find_program(TRIGEN_QEMU NAMES qemu-${machine}-static qemu-${machine})
  if(TRIGEN_QEMU)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${TRIGEN_QEMU})
  endif()
endif()
foreach(tool C=cc CXX=c++)
  string(REPLACE "=" ";" tool ${tool})
  list(GET tool 0 language)
  list(GET tool 1 program)
  set(CMAKE_${language}_COMPILER ${TRIGEN_ZIG_TOOLS}/zig-${program})
endforeach()
set(CMAKE_AR ${TRIGEN_ZIG_TOOLS}/zig-ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${TRIGEN_ZIG_TOOLS}/zig-ranlib CACHE FILEPATH "")
# Stripped where they are linked: this machine's strip may not know the target, and libc++ comes with debug information.
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
