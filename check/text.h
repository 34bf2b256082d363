// Text with numbers in it, for messages and tables: printf's formats, checked by the compiler, into a string.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace trigen {

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...);
// "12.3 us", "1.52 ms", "3.1 s": three digits.
std::string format_seconds(double seconds);
// "16.0 MiB"
std::string format_bytes(double bytes);

}  // namespace trigen
