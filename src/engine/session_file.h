// A conversation in one file: what was said, its pictures, and the keys and values of its beginning, so that
// it goes on after a restart without the tower and without the prompt being read again.
//
//   0    "triptych session"
//   16   version, 1                        uint32, all numbers little-endian
//   20   bytes of the header               uint32
//   24   bytes of the file                 uint64
//   32   header, JSON                      docs/sessions.md has its members
//        token ids [n]                     int32
//        positions [n, n_position_axes]    int32
//        frames of all media, in order     RGB [height, width, 3] each
//        pages of keys and values          as the backend lays them out
//   -32  BLAKE2b-256 of all before
//
// The checksum finds damage; it does not say who wrote the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/op_args.h"
#include "base/fingerprint.h"
#include "engine/request.h"

namespace triptych {

/// Whose keys and values they are.
struct SessionModel {
  std::string architecture;
  Fingerprint fingerprint;
  int n_position_axes = 1;
  KvGeometry kv;  // without n_pages
  std::size_t page_bytes = 0;

  /// Throws Error(kUnsupported) naming what differs, found and expected.
  void check_same(const SessionModel& own, std::string_view source) const;
};

/// A file's content but the frames and pages, which lie in it.
struct SessionContent {
  SessionModel model;
  ChatRequest conversation;  // media without their frames
  struct FrameSize {
    int width_px = 0, height_px = 0;
    std::int64_t n_frames = 0;
  };
  std::vector<FrameSize> frame_sizes;   // of each medium
  std::vector<std::int32_t> tokens;     // [n], 0 or more; that the pages hold
  std::vector<std::int32_t> positions;  // [n * n_position_axes], token by token

  std::size_t frames_bytes() const;  // of all media
  std::size_t n_pages() const;
};

/// A checked file. The spans lie in its bytes.
struct SessionView {
  SessionContent content;
  std::span<const std::byte> frames;
  std::span<const std::byte> pages;  // [n_pages, page_bytes]

  /// The conversation with its frames.
  ChatRequest conversation() const;
};

/// The two checks of a file's own bytes: that they are whole and sound, and what they say. `source` stands in
/// messages. Throws Error: kInvalidFile for what is no session, damaged or cut off, kUnsupported for another
/// version.
SessionView parse_session(std::span<const std::byte> bytes, std::string_view source);

/// Whether a file begins as a session does.
bool is_session(std::span<const std::byte> bytes) noexcept;

/// Writes `conversation` with its frames and `content`'s tokens, whole or not at all; `page(i, to)` gives
/// page i. An existing file is replaced only when it is a session. Throws Error: kInvalidArgument for a file
/// that is something else, kUnsupported for messages with members that the format has no place for, kIo.
void write_session(const std::filesystem::path& path, const SessionContent& content,
                   const std::function<void(std::size_t page, std::span<std::byte> to)>& page);

}  // namespace triptych
