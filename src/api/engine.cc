#include <map>

#include "api/convert.h"
#include "api/impl.h"

namespace triptych::api {
namespace {

// Renders, tokenizes, plans and resizes.
PreparedRequest prepare(const LoadedModel& model, const Request& request) {
  ChatRequest chat;
  for (const ChatMessage& message : request.messages) {
    const auto& inner = Access::message(message);
    chat.messages.push_back(inner.message);
    for (const auto& media : inner.media) chat.media.push_back(*media);
  }
  chat.media_options = to_inner(request.media_options);
  chat.continue_final_message = request.continue_final_message;
  return model.prepare(chat);
}

}  // namespace

struct Engine::Impl {
  Impl(const Model& model_kept, const EngineOptions& options)
      : model(model_kept), engine(Access::model(model), to_inner(options)) {}

  triptych::SamplingParams sampling_of(const Request& request) const {
    return to_inner(request.sampling ? *request.sampling : model.default_sampling());
  }
  StepOutput& output_of(RequestId id) {
    for (StepOutput& output : outputs)
      if (output.request_id == id) return output;
    outputs.push_back({.request_id = id});
    return outputs.back();
  }

  Model model;  // first: the engine borrows it
  triptych::Engine engine;
  std::vector<StepOutput> outputs;      // of the step that runs
  std::vector<RequestId> unfinished;    // in the order of submission
  std::map<RequestId, Result> results;  // finished, not yet taken
};

Engine::Engine(const Model& model, const EngineOptions& options)
    : impl_(translate_errors([&] { return std::make_unique<Impl>(model, options); })) {}
Engine::~Engine() = default;
Engine::Engine(Engine&& other) noexcept = default;
Engine& Engine::operator=(Engine&& other) noexcept = default;

RequestId Engine::submit(const Request& request) {
  return translate_errors([&] {
    Impl& impl = *impl_;
    // The callback learns the id after the engine has given it, which is before any step.
    auto id = std::make_shared<RequestId>(0);
    *id = impl.engine.submit(prepare(Access::model(impl.model), request), impl.sampling_of(request),
                             [&impl, id](const triptych::TokenEvent& event) {
                               impl.output_of(*id).events.push_back(to_public(event));
                               return true;
                             });
    impl.unfinished.push_back(*id);
    return *id;
  });
}

void Engine::cancel(RequestId id) { impl_->engine.cancel(id); }

std::vector<StepOutput> Engine::step() {
  Impl& impl = *impl_;
  impl.outputs.clear();
  translate_errors([&] { impl.engine.step(); });
  std::erase_if(impl.unfinished, [&](RequestId id) {
    auto result = impl.engine.take_result(id);
    if (!result) return false;
    Result& kept = impl.results.emplace(id, to_public(std::move(*result))).first->second;
    impl.output_of(id).finish_reason = kept.finish_reason;
    return true;
  });
  return std::move(impl.outputs);
}

bool Engine::has_work() const noexcept { return !impl_->unfinished.empty(); }

std::optional<Result> Engine::take_result(RequestId id) {
  const auto found = impl_->results.find(id);
  if (found == impl_->results.end()) return std::nullopt;
  Result out = std::move(found->second);
  impl_->results.erase(found);
  return out;
}

Result Engine::generate(const Request& request, const TokenCallback& on_token) {
  triptych::TokenCallback callback;
  if (on_token) callback = [&](const triptych::TokenEvent& event) { return on_token(to_public(event)); };
  return translate_errors([&] {
    return to_public(impl_->engine.generate(prepare(Access::model(impl_->model), request),
                                            impl_->sampling_of(request), std::move(callback)));
  });
}

std::int64_t Engine::max_context_tokens() const noexcept { return impl_->engine.max_context_tokens(); }
std::size_t Engine::kv_cache_bytes() const noexcept { return impl_->engine.kv_cache_bytes(); }

}  // namespace triptych::api
