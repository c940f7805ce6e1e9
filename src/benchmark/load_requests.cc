#include "benchmark/load_requests.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "benchmark/test_jpeg.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxAll_bytes = std::size_t{4} << 30;
constexpr std::uint64_t kPrefixStream = std::uint64_t{1} << 62;  // of random numbers, apart from requests'
constexpr std::array kWords = {"what",  "which", "color", "shape",   "is",    "the",    "object", "near",
                               "left",  "right", "of",    "a",       "small", "large",  "red",    "blue",
                               "green", "in",    "this",  "picture", "count", "people", "text",   "sign"};

std::string base64_of(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (k < n ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[three >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

class BodyMaker {
 public:
  explicit BodyMaker(const LoadRequestOptions& options) : options_(options) {
    if (options.fields.empty()) return;
    fields_ = parse_json(options.fields, "the fields of requests");
    if (!fields_.is_object()) JsonView(fields_, "the fields of requests").fail_expected("an object");
  }

  std::string body_of(const TraceRequest& request, std::size_t index) {
    Json content = Json::array();
    for (const TracePicture& picture : request.pictures)
      content.push_back({{"type", "image_url"}, {"image_url", {{"url", url_of(picture)}}}});
    content.push_back(
        {{"type", "text"}, {"text", request.prompt.empty() ? text_of(request, index) : request.prompt}});
    Json body = {{"model", options_.model},
                 {"messages", {{{"role", "user"}, {"content", std::move(content)}}}},
                 {"max_tokens", request.answer_tokens},
                 {"temperature", 0},
                 {"ignore_eos", true},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}}};
    if (request.priority != 0) body["priority"] = request.priority;
    if (!request.tenant.empty()) body["user"] = request.tenant;
    if (fields_.is_object()) body.merge_patch(fields_);
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  const std::string& url_of(const TracePicture& picture) {
    const auto [place, is_new] =
        urls_.try_emplace({picture.width_px, picture.height_px, picture.group, picture.file});
    if (!is_new) return place->second;
    if (picture.file.empty()) {
      place->second = "data:image/jpeg;base64," +
                      base64_of(make_test_jpeg(picture.width_px, picture.height_px, picture.group));
    } else {
      const std::filesystem::path file = options_.folder / picture.file;
      const auto mapped = MappedFile::open(file);
      // Only for its type; decoding is the server's.
      const ImageInfo info = probe_image(mapped->bytes(), {}, file.string());
      std::string type(to_string(info.format));
      for (char& c : type)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      place->second = "data:image/" + type + ";base64," + base64_of(mapped->bytes());
    }
    return place->second;
  }

  // The words that its group shares come first, so that prompts share their beginning.
  static std::string text_of(const TraceRequest& request, std::size_t index) {
    std::string out;
    const auto add = [&](std::int64_t n, std::uint64_t stream) {
      Rng rng(0, stream);
      for (; n > 0; --n) {
        if (!out.empty()) out += ' ';
        out += kWords[rng.below(kWords.size())];
      }
    };
    add(request.prefix_tokens, kPrefixStream + static_cast<std::uint64_t>(request.prefix_group));
    add(request.prompt_tokens - request.prefix_tokens, index);
    return out;
  }

  const LoadRequestOptions& options_;
  Json fields_;
  std::map<std::tuple<int, int, std::int64_t, std::string>, std::string> urls_;
};

}  // namespace

std::vector<std::string> make_load_bodies(const std::vector<TraceRequest>& trace,
                                          const LoadRequestOptions& options) {
  BodyMaker maker(options);
  std::vector<std::string> out;
  std::size_t n_bytes = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) try {
      out.push_back(maker.body_of(trace[i], i));
      n_bytes += out.back().size();
      if (n_bytes > kMaxAll_bytes)
        fail(ErrorCode::kInvalidArgument, "expected bodies of at most {} bytes together", kMaxAll_bytes);
    } catch (const Error& error) {
      throw error.with_context(fmt::format("request {} of the trace", i + 1));
    }
  return out;
}

}  // namespace triptych
