// Pictures as requests name them: data URLs (RFC 2397), or base64 alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace triptych::server {

struct DataUrl {
  std::string media_type;  // "image/png", in lower case; may be empty
  std::string bytes;
};

/// Whether it begins "data:".
bool is_data_url(std::string_view url) noexcept;

/// "data:[TYPE][;name=value]...[;base64],DATA"; data without base64 is percent-coded. Throws Error
/// (kInvalidArgument) that says what is wrong, kUnsupported for a type that is no picture.
DataUrl parse_data_url(std::string_view url);

/// The parts of a video in a data URL: an animation or a picture is one; "data:video/jpeg;base64,A,B,C" has a
/// picture behind each comma (as vLLM takes frames). Throws as parse_data_url.
std::vector<std::string> parse_video_data_url(std::string_view url);

/// Throws Error(kInvalidArgument) for a broken escape.
std::string percent_decoded(std::string_view text);

/// Base64 in one piece or in lines; also the alphabet for URLs. Throws Error(kInvalidArgument).
std::string decode_base64_text(std::string_view text);

}  // namespace triptych::server
