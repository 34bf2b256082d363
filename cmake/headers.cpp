// The source file that precompiled headers are made with (CMakeLists.txt, tests/CMakeLists.txt).
