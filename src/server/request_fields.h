// Fields that the forms of requests share, from JSON: names, types and ranges. Pure functions of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/sampling.h"
#include "models/model.h"
#include "server/api_error.h"

namespace triptych::server {

/// In errors of JsonView; ApiError::of_json takes it off again.
inline constexpr std::string_view kBodyName = "request";

/// A body: its values by JsonView, and in the order of the client where that counts (tools, schemas).
class RequestBody {
 public:
  /// Throws ApiError 400 when it is not a JSON object.
  explicit RequestBody(std::string_view text);
  ~RequestBody();
  RequestBody(const RequestBody&) = delete;
  RequestBody& operator=(const RequestBody&) = delete;

  JsonView view() const;
  /// The member `key`, or null. Parsed on first use.
  const OrderedJson& ordered(const std::string& key) const;

 private:
  std::string_view text_;
  std::unique_ptr<const Json> json_;
  mutable std::unique_ptr<const OrderedJson> ordered_;
};

/// What every form that generates text has.
struct CommonParams {
  std::string model;  // empty: not said
  SamplingParams sampling;
  int n = 1;  // answers
  bool stream = false;
  bool include_usage = false;  // stream_options
  int priority = 0;            // lower goes first
  std::string cache_salt;
  MediaOptions media_options;
  std::string user;
  std::vector<std::string> unknown_fields;
};

/// Reads them over `defaults` (the model's own sampling). Not those that forms write differently: `logprobs`,
/// `max_tokens` beside `max_completion_tokens`. Throws ApiError with the field's path.
CommonParams read_common(const RequestBody& body, const SamplingParams& defaults);

/// Notes members that are neither common nor `own`.
void note_unknown(const RequestBody& body, const std::set<std::string_view>& own, CommonParams& out);

/// `max_tokens`, or under another name; 0 and below are errors.
void read_max_tokens(const JsonView& body, std::string_view key, SamplingParams& out);

/// Throws ApiError 400 for a second constraint.
void set_constraint(SamplingParams& params, const std::string& param, ConstraintSpec spec);

/// Calls `read` and turns what JsonView throws into ApiError.
template <typename Read>
auto with_paths(Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw ApiError::of_json(error, kBodyName);
  }
}

}  // namespace triptych::server
