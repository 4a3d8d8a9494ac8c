// Preloaded, it gives every generator of the process the same seed: what happens once in tens of
// thousands of steps by chance happens at once.

#include <random>

unsigned int std::random_device::_M_getval() { return 42; }
