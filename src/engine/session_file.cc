#include "engine/session_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/block_pool.h"
#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::string_view kMagic = "triptych session";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kPrefixBytes = 32;
constexpr std::size_t kDigestBytes = sizeof(Fingerprint);
constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 20;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 30;
constexpr int kMaxSidePx = 65535;

// a * b, at most `most`: sizes come from the file, and all that they promise lies in it.
std::size_t bounded_product(std::size_t a, std::size_t b, std::size_t most, std::string_view source) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > most)
    fail(ErrorCode::kInvalidFile, "{}: {} times {} bytes are more than the file has", source, a, b);
  return product;
}

template <typename T>
T read_number(std::span<const std::byte> bytes, std::size_t at) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

// ---- what the header says

const char* kind_name(ContentPart::Kind kind) {
  return kind == ContentPart::Kind::kText ? "text" : kind == ContentPart::Kind::kImage ? "image" : "video";
}

OrderedJson message_json(const ChatMessage& message) {
  if (message.fields != nullptr && !message.fields->is_null() && !message.fields->empty())
    fail(ErrorCode::kUnsupported, "a session holds no messages with further members such as tool calls");
  OrderedJson out;
  out["role"] = message.role;
  out["form"] = message.content_is_null ? "null" : message.content_is_string ? "string" : "parts";
  OrderedJson& parts = out["content"] = OrderedJson::array();
  for (const ContentPart& part : message.parts) {
    OrderedJson one = {{"type", kind_name(part.kind)}};
    if (part.kind == ContentPart::Kind::kText) one["text"] = part.text;
    parts.push_back(std::move(one));
  }
  return out;
}

ChatMessage parse_message(const JsonView& json) {
  ChatMessage out;
  out.role = json.at("role").as_string();
  const std::string form = json.at("form").as_string();
  if (form != "null" && form != "string" && form != "parts")
    json.at("form").fail_expected("\"null\", \"string\" or \"parts\"");
  out.content_is_null = form == "null";
  out.content_is_string = form == "string";
  for (const JsonView& part : json.at("content").items()) {
    const std::string type = part.at("type").as_string();
    ContentPart one;
    if (type == "text") {
      one.text = part.at("text").as_string();
    } else if (type == "image" || type == "video") {
      one.kind = type == "image" ? ContentPart::Kind::kImage : ContentPart::Kind::kVideo;
    } else {
      part.at("type").fail_expected("\"text\", \"image\" or \"video\"");
    }
    out.parts.push_back(std::move(one));
  }
  if (out.content_is_null && !out.parts.empty()) json.at("content").fail_expected("no parts");
  if (out.content_is_string &&
      (out.parts.size() > 1 || (out.parts.size() == 1 && out.parts[0].kind != ContentPart::Kind::kText)))
    json.at("content").fail_expected("one text at most");
  return out;
}

OrderedJson media_json(const MediaInput& media, const SessionContent::FrameSize& size) {
  return {{"type", media.is_video ? "video" : "image"},
          {"width", size.width_px},
          {"height", size.height_px},
          {"frames", size.n_frames},
          {"frames_per_s", media.frames_per_s},
          {"frame_times_s", media.frame_times_s},
          {"name", media.name}};
}

void parse_media(const JsonView& json, SessionContent& out) {
  MediaInput media;
  const std::string type = json.at("type").as_string();
  if (type != "image" && type != "video") json.at("type").fail_expected("\"image\" or \"video\"");
  media.is_video = type == "video";
  SessionContent::FrameSize size;
  size.width_px = static_cast<int>(json.at("width").as_int(1, kMaxSidePx));
  size.height_px = static_cast<int>(json.at("height").as_int(1, kMaxSidePx));
  size.n_frames = json.at("frames").as_int(1, media.is_video ? kMaxTokens : 1);
  media.frames_per_s = json.at("frames_per_s").as_double(0);
  for (const JsonView& time : json.at("frame_times_s").items())
    media.frame_times_s.push_back(time.as_double());
  if (!media.frame_times_s.empty() && static_cast<std::int64_t>(media.frame_times_s.size()) != size.n_frames)
    json.at("frame_times_s").fail_expected("a time of each frame, or none");
  media.name = json.at("name").as_string();
  out.conversation.media.push_back(std::move(media));
  out.frame_sizes.push_back(size);
}

OrderedJson header_json(const SessionContent& content) {
  const SessionModel& model = content.model;
  OrderedJson out;
  out["model"] = {{"architecture", model.architecture}, {"fingerprint", to_hex(model.fingerprint)}};
  out["kv_cache"] = {{"dtype", to_string(model.kv.dtype)},  {"layers", model.kv.n_layers},
                     {"kv_heads", model.kv.n_kv_heads},     {"head_dim", model.kv.head_dim},
                     {"page_tokens", model.kv.page_tokens}, {"page_bytes", model.page_bytes}};
  out["tokens"] = content.tokens.size();
  out["position_axes"] = model.n_position_axes;
  const MediaOptions& options = content.conversation.media_options;
  out["media_options"] = {{"min_pixels", options.min_pixels}, {"max_pixels", options.max_pixels}};
  OrderedJson& media = out["media"] = OrderedJson::array();
  for (std::size_t i = 0; i < content.frame_sizes.size(); ++i)
    media.push_back(media_json(content.conversation.media[i], content.frame_sizes[i]));
  OrderedJson& messages = out["messages"] = OrderedJson::array();
  for (const ChatMessage& message : content.conversation.messages) messages.push_back(message_json(message));
  return out;
}

// Gives the number of tokens, whose ids follow.
std::int64_t parse_header(const JsonView& json, SessionContent& out) {
  SessionModel& model = out.model;
  model.architecture = json.at("model").at("architecture").as_string();
  const JsonView fingerprint = json.at("model").at("fingerprint");
  const auto parsed = fingerprint_from_hex(fingerprint.as_string());
  if (!parsed) fingerprint.fail_expected("64 hexadecimal digits");
  model.fingerprint = *parsed;
  const JsonView kv = json.at("kv_cache");
  constexpr std::int64_t kMost = 1 << 20;
  const auto dtype = [&]() -> std::optional<KvDType> {
    try {
      return parse_kv_dtype(kv.at("dtype").as_string());
    } catch (const Error&) {
      return std::nullopt;
    }
  }();
  if (!dtype) kv.at("dtype").fail_expected("the name of a type");
  model.kv.dtype = *dtype;
  model.kv.n_layers = static_cast<int>(kv.at("layers").as_int(1, kMost));
  model.kv.n_kv_heads = static_cast<int>(kv.at("kv_heads").as_int(1, kMost));
  model.kv.head_dim = static_cast<int>(kv.at("head_dim").as_int(1, kMost));
  model.kv.page_tokens = static_cast<int>(kv.at("page_tokens").as_int(kBlockTokens, kBlockTokens));
  model.page_bytes = static_cast<std::size_t>(kv.at("page_bytes").as_int(1, std::int64_t{1} << 40));
  model.n_position_axes = static_cast<int>(json.at("position_axes").as_int(1, 16));
  const JsonView options = json.at("media_options");
  constexpr std::int64_t kMostPixels = std::int64_t{1} << 40;
  out.conversation.media_options = {.min_pixels = options.at("min_pixels").as_int(0, kMostPixels),
                                    .max_pixels = options.at("max_pixels").as_int(0, kMostPixels)};
  std::size_t n_parts = 0;
  for (const JsonView& message : json.at("messages").items()) {
    out.conversation.messages.push_back(parse_message(message));
    for (const ContentPart& part : out.conversation.messages.back().parts)
      n_parts += part.kind == ContentPart::Kind::kText ? 0 : 1;
  }
  for (const JsonView& media : json.at("media").items()) parse_media(media, out);
  if (n_parts != out.frame_sizes.size())
    json.at("media").fail_expected(fmt::format("the {} pictures and videos of the messages", n_parts));
  return json.at("tokens").as_int(0, kMaxTokens);
}

std::span<const std::byte> frame_bytes(const Image& frame) { return std::as_bytes(std::span(frame.rgb)); }

}  // namespace

void SessionModel::check_same(const SessionModel& own, std::string_view source) const {
  if (architecture != own.architecture)
    fail(ErrorCode::kUnsupported, "{}: a session of {}, this model is {}", source, architecture,
         own.architecture);
  if (fingerprint != own.fingerprint)
    fail(ErrorCode::kUnsupported,
         "{}: a session of another model: its fingerprint is {}..., this one's {}... (weights, their types "
         "and the "
         "program's version are part of it)",
         source, to_hex(fingerprint).substr(0, 16), to_hex(own.fingerprint).substr(0, 16));
  if (kv.dtype != own.kv.dtype)
    fail(ErrorCode::kUnsupported, "{}: its keys and values are {}, this cache's are {} (--kv-cache-dtype)",
         source, to_string(kv.dtype), to_string(own.kv.dtype));
  if (kv.n_layers != own.kv.n_layers || kv.n_kv_heads != own.kv.n_kv_heads ||
      kv.head_dim != own.kv.head_dim || kv.page_tokens != own.kv.page_tokens ||
      page_bytes != own.page_bytes || n_position_axes != own.n_position_axes)
    fail(ErrorCode::kUnsupported,
         "{}: a cache of {} layers, {} heads of {} in pages of {} bytes, this one has {}, {} of {}, {}",
         source, kv.n_layers, kv.n_kv_heads, kv.head_dim, page_bytes, own.kv.n_layers, own.kv.n_kv_heads,
         own.kv.head_dim, own.page_bytes);
}

std::size_t SessionContent::frames_bytes() const {
  std::size_t out = 0;
  for (const FrameSize& size : frame_sizes)
    out += static_cast<std::size_t>(size.width_px) * static_cast<std::size_t>(size.height_px) * 3 *
           static_cast<std::size_t>(size.n_frames);
  return out;
}

std::size_t SessionContent::n_pages() const {
  return static_cast<std::size_t>(blocks_for(static_cast<std::int64_t>(tokens.size())));
}

ChatRequest SessionView::conversation() const {
  ChatRequest out = content.conversation;
  const std::byte* at = frames.data();
  for (std::size_t i = 0; i < out.media.size(); ++i) {
    const SessionContent::FrameSize& size = content.frame_sizes[i];
    for (std::int64_t f = 0; f < size.n_frames; ++f) {
      Image image;
      image.width_px = size.width_px;
      image.height_px = size.height_px;
      const std::size_t n = image.row_bytes() * static_cast<std::size_t>(size.height_px);
      image.rgb.resize(n);
      std::memcpy(image.rgb.data(), at, n);
      at += n;
      out.media[i].frames.push_back(std::move(image));
    }
  }
  return out;
}

bool is_session(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

SessionView parse_session(std::span<const std::byte> bytes, std::string_view source) {
  if (!is_session(bytes)) fail(ErrorCode::kInvalidFile, "{}: no saved session", source);
  if (bytes.size() < kPrefixBytes + kDigestBytes)
    fail(ErrorCode::kInvalidFile, "{}: cut off: a session of {} bytes", source, bytes.size());
  if (const auto version = read_number<std::uint32_t>(bytes, 16); version != kVersion)
    fail(ErrorCode::kUnsupported, "{}: version {} of the format, this program reads {}", source, version,
         kVersion);
  if (const auto size = read_number<std::uint64_t>(bytes, 24); size != bytes.size())
    fail(ErrorCode::kInvalidFile, "{}: cut off or damaged: {} bytes of {}", source, bytes.size(), size);
  const std::span<const std::byte> body = bytes.first(bytes.size() - kDigestBytes);
  if (fingerprint(body) != read_number<Fingerprint>(bytes, body.size()))
    fail(ErrorCode::kInvalidFile, "{}: damaged: its checksum is another", source);
  const auto n_header = std::size_t{read_number<std::uint32_t>(bytes, 20)};
  if (n_header > kMaxHeaderBytes || n_header > body.size() - kPrefixBytes)
    fail(ErrorCode::kInvalidFile, "{}: a header of {} bytes", source, n_header);
  const std::string_view text(reinterpret_cast<const char*>(body.data()) + kPrefixBytes, n_header);
  const Json json = parse_json_unique_keys(text, source);
  SessionView out;
  SessionContent& content = out.content;
  const std::int64_t n_tokens = parse_header(JsonView(json, std::string(source)), content);

  std::span<const std::byte> rest = body.subspan(kPrefixBytes + n_header);
  const auto take = [&](std::size_t n) {
    if (n > rest.size())
      fail(ErrorCode::kInvalidFile, "{}: {} bytes are left where {} should be", source, rest.size(), n);
    const std::span<const std::byte> first = rest.first(n);
    rest = rest.subspan(n);
    return first;
  };
  const auto take_numbers = [&](std::size_t n, std::vector<std::int32_t>& to) {
    const auto numbers = take(bounded_product(n, sizeof(std::int32_t), rest.size(), source));
    to.resize(n);
    if (n > 0) std::memcpy(to.data(), numbers.data(), numbers.size());
  };
  const auto n = static_cast<std::size_t>(n_tokens);
  take_numbers(n, content.tokens);
  take_numbers(n * static_cast<std::size_t>(content.model.n_position_axes), content.positions);
  std::size_t n_frames_bytes = 0;
  for (const SessionContent::FrameSize& size : content.frame_sizes) {
    const std::size_t one = static_cast<std::size_t>(size.width_px) * 3;
    const std::size_t frame =
        bounded_product(one, static_cast<std::size_t>(size.height_px), rest.size(), source);
    n_frames_bytes +=
        bounded_product(frame, static_cast<std::size_t>(size.n_frames), rest.size() - n_frames_bytes, source);
  }
  out.frames = take(n_frames_bytes);
  out.pages = take(bounded_product(content.n_pages(), content.model.page_bytes, rest.size(), source));
  if (!rest.empty()) fail(ErrorCode::kInvalidFile, "{}: {} bytes behind its end", source, rest.size());
  return out;
}

void write_session(const std::filesystem::path& path, const SessionContent& content,
                   const std::function<void(std::size_t page, std::span<std::byte> to)>& page) {
  if (std::error_code ignored; std::filesystem::is_regular_file(path, ignored))
    if (!is_session(MappedFile::open(path)->bytes()))
      fail(ErrorCode::kInvalidArgument, "{}: exists and is no saved session; give another name",
           path.string());
  const auto check_utf8 = [&](std::string_view text) {
    if (!utf8::is_valid(text))
      fail(ErrorCode::kUnsupported, "{}: a message or file name is not valid UTF-8", path.string());
  };
  for (const ChatMessage& message : content.conversation.messages) {
    check_utf8(message.role);
    for (const ContentPart& part : message.parts) check_utf8(part.text);
  }
  for (const MediaInput& media : content.conversation.media) check_utf8(media.name);
  const std::string header = header_json(content).dump();
  if (header.size() > kMaxHeaderBytes)
    fail(ErrorCode::kUnsupported, "{}: the conversation's text takes {} bytes, {} are allowed", path.string(),
         header.size(), kMaxHeaderBytes);
  const std::size_t n_numbers = content.tokens.size() + content.positions.size();
  const std::uint64_t n_bytes = kPrefixBytes + header.size() + n_numbers * sizeof(std::int32_t) +
                                content.frames_bytes() + content.n_pages() * content.model.page_bytes +
                                kDigestBytes;
  AtomicFile file(path);
  Digest digest;
  const auto write = [&](std::span<const std::byte> bytes) {
    digest.add(bytes);
    file.write(bytes);
  };
  const auto write_number = [&](auto number) { write(std::as_bytes(std::span(&number, 1))); };
  write(std::as_bytes(std::span(kMagic)));
  write_number(kVersion);
  write_number(static_cast<std::uint32_t>(header.size()));
  write_number(n_bytes);
  write(std::as_bytes(std::span(header)));
  write(std::as_bytes(std::span(content.tokens)));
  write(std::as_bytes(std::span(content.positions)));
  for (const MediaInput& media : content.conversation.media)
    for (const Image& frame : media.frames) write(frame_bytes(frame));
  std::vector<std::byte> one(content.model.page_bytes);
  for (std::size_t i = 0; i < content.n_pages(); ++i) {
    page(i, one);
    write(one);
  }
  const Fingerprint checksum = digest.finish();
  file.write(std::as_bytes(std::span(&checksum, 1)));
  file.commit();
}

}  // namespace triptych
