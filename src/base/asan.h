// What the code says to AddressSanitizer about memory that it hands out itself; nothing in other builds.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define TRIPTYCH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIPTYCH_ASAN 1
#endif
#endif

#ifdef TRIPTYCH_ASAN
#include <sanitizer/asan_interface.h>
#define TRIPTYCH_POISON(data, size_bytes) __asan_poison_memory_region(data, size_bytes)
#define TRIPTYCH_UNPOISON(data, size_bytes) __asan_unpoison_memory_region(data, size_bytes)
#else
#define TRIPTYCH_POISON(data, size_bytes) (static_cast<void>(data), static_cast<void>(size_bytes))
#define TRIPTYCH_UNPOISON(data, size_bytes) (static_cast<void>(data), static_cast<void>(size_bytes))
#endif
