#include "api/convert.h"
#include "api/impl.h"

namespace triptych::api {
namespace {

ChatRequest to_inner_chat(const std::vector<ChatMessage>& messages, const MediaOptions& media_options) {
  ChatRequest out;
  for (const ChatMessage& message : messages) {
    const auto& inner = Access::message(message);
    out.messages.push_back(inner.message);
    for (const auto& media : inner.media) out.media.push_back(*media);
  }
  out.media_options = to_inner(media_options);
  return out;
}

// Renders, tokenizes, plans and resizes.
PreparedRequest prepare(const LoadedModel& model, const triptych::Engine& engine, const Request& request) {
  ChatRequest chat = to_inner_chat(request.messages, request.media_options);
  chat.continue_final_message = request.continue_final_message;
  chat.cache_salt = request.cache_salt;
  PreparedRequest out =
      model.prepare(chat, [&](const MediaItem& item) { return engine.has_media_rows(item); });
  out.queue = {.priority = request.priority, .tenant = request.tenant, .timeout_ms = request.timeout_ms};
  return out;
}

}  // namespace

struct Engine::Impl {
  Impl(const Model& model_kept, const EngineOptions& options)
      : model(model_kept), engine(Access::model(model), to_inner(options)) {}

  triptych::SamplingParams sampling_of(const Request& request) const {
    triptych::SamplingParams out = to_inner(request.sampling ? *request.sampling : model.default_sampling());
    // What SamplingParams has no name for is as generation_config.json says, whatever else is asked.
    out.processors = Access::model(model).generation_defaults().processors;
    return out;
  }

  Model model;  // first: the engine borrows it
  triptych::Engine engine;
};

Engine::Engine(const Model& model, const EngineOptions& options)
    : impl_(translate_errors([&] { return std::make_unique<Impl>(model, options); })) {}
Engine::~Engine() = default;
Engine::Engine(Engine&& other) noexcept = default;
Engine& Engine::operator=(Engine&& other) noexcept = default;

RequestId Engine::submit(const Request& request) {
  return translate_errors([&] {
    return impl_->engine.submit(prepare(Access::model(impl_->model), impl_->engine, request),
                                impl_->sampling_of(request));
  });
}

void Engine::cancel(RequestId id) { impl_->engine.cancel(id); }

std::vector<StepOutput> Engine::step() {
  return translate_errors([&] {
    std::vector<StepOutput> out;
    for (const triptych::StepOutput& output : impl_->engine.step()) out.push_back(to_public(output));
    return out;
  });
}

bool Engine::has_work() const noexcept { return impl_->engine.has_work(); }

std::optional<Result> Engine::take_result(RequestId id) {
  return translate_errors([&]() -> std::optional<Result> {
    auto result = impl_->engine.take_result(id);
    if (!result) return std::nullopt;
    return to_public(std::move(*result));
  });
}

Result Engine::generate(const Request& request, const TokenCallback& on_token) {
  triptych::TokenCallback callback;
  if (on_token) callback = [&](const triptych::TokenEvent& event) { return on_token(to_public(event)); };
  return translate_errors([&] {
    return to_public(impl_->engine.generate(prepare(Access::model(impl_->model), impl_->engine, request),
                                            impl_->sampling_of(request), std::move(callback)));
  });
}

std::int64_t Engine::save_session(const std::string& path, const std::vector<ChatMessage>& messages,
                                  const MediaOptions& media_options) {
  return translate_errors(
      [&] { return impl_->engine.save_session(path, to_inner_chat(messages, media_options)); });
}

Session Engine::load_session(const std::string& path) {
  return translate_errors([&] {
    Session out;
    ChatRequest chat = impl_->engine.load_session(path, &out.n_cached_tokens);
    auto media = chat.media.begin();
    for (triptych::ChatMessage& message : chat.messages) {
      std::vector<std::shared_ptr<const MediaInput>> own;
      for (const ContentPart& part : message.parts)
        if (part.kind != ContentPart::Kind::kText)
          own.push_back(std::make_shared<const MediaInput>(std::move(*media++)));
      out.messages.push_back(Access::make_message(std::move(message), std::move(own)));
    }
    out.media_options = {.min_pixels = chat.media_options.min_pixels,
                         .max_pixels = chat.media_options.max_pixels};
    return out;
  });
}

std::int64_t Engine::max_context_tokens() const noexcept { return impl_->engine.max_context_tokens(); }
std::size_t Engine::kv_cache_bytes() const noexcept { return impl_->engine.kv_cache_bytes(); }
VisionCacheStats Engine::vision_cache_stats() const { return to_public(impl_->engine.vision_cache_stats()); }

}  // namespace triptych::api
