// What marks the public interface.
#pragma once

/// On what libtriptych.so exports; everything else in it is hidden.
#define TRIPTYCH_API __attribute__((visibility("default")))

// Symbols of the interface lie in triptych::api, apart from those of the engine's own classes, some of which
// have the same names. Users leave `api` out: triptych::Engine. The sources of the library do not see both
// names at once (TRIPTYCH_BUILDING, src/api/public.h).
namespace triptych {
namespace api {}
#ifndef TRIPTYCH_BUILDING
using namespace api;
#endif
}  // namespace triptych
