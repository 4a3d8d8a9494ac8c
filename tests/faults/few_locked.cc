// Preloaded, the process may lock LOCKED_BYTES of memory and no more, as an ordinary user's may:
// root's capability, which lifts the limit, is given up.

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

__attribute__((constructor)) static void LimitLockedMemory() {
  const char* const bytes = std::getenv("LOCKED_BYTES");
  if (bytes == nullptr) {
    std::fputs("few_locked: LOCKED_BYTES is not set\n", stderr);
    std::_Exit(1);
  }
  const rlim_t most = std::strtoull(bytes, nullptr, 10);
  const rlimit limit = {most, most};
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  bool limited = setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && syscall(SYS_capget, &header, data) == 0;
  const unsigned int kept = ~CAP_TO_MASK(CAP_IPC_LOCK);
  data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= kept;
  data[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted &= kept;
  limited = limited && syscall(SYS_capset, &header, data) == 0;
  if (!limited) {
    std::perror("few_locked");
    std::_Exit(1);
  }
}
