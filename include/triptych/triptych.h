// All of the public interface:
//
//   triptych::Engine engine(triptych::Model::open("llava-1.5-7b"));
//   auto picture = triptych::Image::from_file("cat.jpg");
//   auto result = engine.generate({.messages = {triptych::ChatMessage::user("What is it?", {picture})}});
//   puts(result.text.c_str());
//
// Failures throw triptych::Error. Structs may be made with designated initializers.
#pragma once

#include "triptych/chat_message.h"
#include "triptych/engine.h"
#include "triptych/error.h"
#include "triptych/image.h"
#include "triptych/log.h"
#include "triptych/media_options.h"
#include "triptych/model.h"
#include "triptych/region.h"
#include "triptych/request.h"
#include "triptych/result.h"
#include "triptych/sampling.h"
#include "triptych/version.h"
#include "triptych/video.h"
