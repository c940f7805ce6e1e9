#include "api/convert.h"
#include "api/impl.h"
#include "api/load_options.h"
#include "base/build_info.h"
#include "base/log.h"

namespace triptych::api {
Model::Model(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Model::Model(const Model& other) noexcept = default;
Model& Model::operator=(const Model& other) noexcept = default;
Model::~Model() = default;

Model Model::open(const std::string& directory, const ModelOptions& options) {
  return translate_errors([&] {
    auto impl = std::make_shared<Impl>();
    impl->model = LoadedModel::open(directory, to_load_options(options));
    impl->default_sampling = to_public(impl->model->generation_defaults());
    return Model(std::move(impl));
  });
}

const std::string& Model::architecture() const noexcept { return impl_->model->info().architecture; }
std::int64_t Model::max_context_tokens() const noexcept { return impl_->model->info().max_context_tokens; }
std::int64_t Model::vocab_size() const noexcept { return impl_->model->info().vocab_size; }
int Model::max_images() const noexcept { return impl_->model->info().max_images; }
bool Model::takes_videos() const noexcept { return !impl_->model->info().video_placeholder.empty(); }
void Model::check_takes_videos() const {
  translate_errors([&] { triptych::check_takes_videos(impl_->model->info()); });
}
bool Model::takes_pixel_limits() const noexcept { return impl_->model->info().takes_pixel_limits; }
bool Model::names_regions() const noexcept { return impl_->model->info().names_regions; }
const SamplingParams& Model::default_sampling() const noexcept { return impl_->default_sampling; }

void Model::check_sampling(const SamplingParams& sampling) const {
  translate_errors([&] {
    const triptych::SamplingParams inner = to_inner(sampling);
    inner.validate(vocab_size());
    if (!inner.constraint.empty()) impl_->model->token_masker().constrain(inner.constraint);
  });
}

std::string Model::token(std::int32_t id) const {
  return translate_errors([&] {
    const Tokenizer& tokenizer = impl_->model->tokenizer();
    return id < 0 || id >= tokenizer.vocab_size() ? std::string() : tokenizer.id_to_token(id);
  });
}

void set_log_level(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug:
      return triptych::set_log_level(triptych::LogLevel::kDebug);
    case LogLevel::kInfo:
      return triptych::set_log_level(triptych::LogLevel::kInfo);
    case LogLevel::kWarning:
      return triptych::set_log_level(triptych::LogLevel::kWarning);
    case LogLevel::kError:
      return triptych::set_log_level(triptych::LogLevel::kError);
    case LogLevel::kOff:
      return triptych::set_log_level(triptych::LogLevel::kOff);
  }
}

std::string_view version() noexcept { return build_info().version; }
std::string_view revision() noexcept { return build_info().revision; }

}  // namespace triptych::api
