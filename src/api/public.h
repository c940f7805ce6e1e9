// The public interface as sources of this tree see it: in triptych::api alone, since triptych has inner
// classes of the same names. They include it through this header.
#pragma once

#define TRIPTYCH_BUILDING
#include "triptych/triptych.h"
