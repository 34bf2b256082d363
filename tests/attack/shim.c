/* LD_PRELOAD: the SHIM_AT-th call of SHIM_CALL fails with errno SHIM_ERRNO; a statfs of a path
 * that begins with SHIM_NFS says that it lies on NFS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/vfs.h>

static atomic_int calls;
static int fails(const char* name) {
  const char* const which = getenv("SHIM_CALL");
  if (which == NULL || strcmp(which, name) != 0 || atomic_fetch_add(&calls, 1) + 1 != atoi(getenv("SHIM_AT")))
    return 0;
  errno = atoi(getenv("SHIM_ERRNO"));
  return 1;
}
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define SHIM(type, name, parameters, arguments) \
  type name parameters {                        \
    if (fails(#name)) return (type)-1;          \
    return REAL(name) arguments;                \
  }

ssize_t pread64(int, void*, size_t, off64_t);
ssize_t pwrite64(int, const void*, size_t, off64_t);
int fsync(int);
int fdatasync(int);
int ftruncate64(int, off64_t);
int rename(const char*, const char*);
int unlink(const char*);
int close(int);
int mkostemp(char*, int);
ssize_t write(int, const void*, size_t);

SHIM(ssize_t, pread64, (int file, void* to, size_t size, off64_t at), (file, to, size, at))
SHIM(ssize_t, pwrite64, (int file, const void* from, size_t size, off64_t at), (file, from, size, at))
SHIM(ssize_t, pread, (int file, void* to, size_t size, off_t at), (file, to, size, at))
SHIM(ssize_t, pwrite, (int file, const void* from, size_t size, off_t at), (file, from, size, at))
SHIM(ssize_t, read, (int file, void* to, size_t size), (file, to, size))
SHIM(ssize_t, write, (int file, const void* from, size_t size), (file, from, size))
SHIM(int, fsync, (int file), (file))
SHIM(int, fdatasync, (int file), (file))
SHIM(int, ftruncate, (int file, off_t size), (file, size))
SHIM(int, ftruncate64, (int file, off64_t size), (file, size))
SHIM(int, rename, (const char* from, const char* to), (from, to))
SHIM(int, unlink, (const char* path), (path))
SHIM(int, fchmod, (int file, mode_t mode), (file, mode))
SHIM(int, mkostemp, (char* name, int flags), (name, flags))

/* A descriptor is gone even where close() says that it failed. */
int close(int file) {
  const int result = REAL(close)(file);
  return fails("close") ? -1 : result;
}
/* glibc's declarations are variadic; one more argument is passed on as it came. */
int fcntl(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  const int locks = command == F_OFD_SETLK || command == F_OFD_SETLKW;
  return locks && fails("lock") ? -1 : REAL(fcntl)(file, command, argument);
}
int fcntl64(int, int, ...) __attribute__((alias("fcntl")));
static int open_with(const char* symbol, const char* path, int flags, mode_t mode) {
  if (fails("open")) return -1;
  return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, symbol))(path, flags, mode);
}
#define SHIM_OPEN(name)                            \
  int name(const char* path, int flags, ...) {     \
    va_list list;                                  \
    va_start(list, flags);                         \
    const mode_t mode = (mode_t)va_arg(list, int); \
    va_end(list);                                  \
    return open_with(#name, path, flags, mode);    \
  }
SHIM_OPEN(open)
SHIM_OPEN(open64)

int statfs(const char* path, struct statfs* to) {
  const char* const nfs = getenv("SHIM_NFS");
  const int result = REAL(statfs)(path, to);
  if (result == 0 && nfs != NULL && strncmp(path, nfs, strlen(nfs)) == 0) to->f_type = 0x6969;
  return result;
}
