// JPEG with libjpeg-turbo. As in Pillow: no colour management, the decoder's default (accurate) transform and
// smooth upsampling, four-component files are inverted CMYK (Adobe's convention, assumed also without the
// APP14 marker).
//
// A damaged file is an error: libjpeg's warnings about data (bad codes, an early end, lost restart markers)
// stop the decoder, and so does a file that ends before its end marker, even if only the marker is missing
// (Pillow refuses it too). The format has no checksum: damage that reads as valid codes cannot be noticed.
// libjpeg reports faults by longjmp: its calls run inside guarded(), whose steps own nothing.
//
// jpeglib.h needs the two headers before it, and jerror.h needs jpeglib.h:
// clang-format off
#include <stddef.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <setjmp.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/orientation.h"
#include "media/codecs/pixels.h"

namespace triptych::codec {
namespace {

// A progressive file may rewrite the whole picture once per scan; encoders make about 10 scans.
constexpr int kMaxScans = 100;

bool matches(std::span<const std::byte> bytes) { return Bytes(bytes).starts_with(0, "\xff\xd8\xff"); }

class JpegReader {
 public:
  explicit JpegReader(const Source& source);
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Header read_header();
  Image decode();

 private:
  struct Errors {
    jpeg_error_mgr base;
    JpegReader* reader;
  };

  template <typename Step>
  void guarded(Step step) {
    if (setjmp(jump_) == 0) {
      step();
      return;
    }
    if (is_unsupported_) fail_unsupported(source_, ImageFormat::kJpeg, message_);
    fail_damaged(source_, ImageFormat::kJpeg, message_);
  }
  int orientation() const;

  [[noreturn]] static void on_error(j_common_ptr info) {
    JpegReader* reader = reinterpret_cast<Errors*>(info->err)->reader;
    const int code = info->err->msg_code;
    reader->is_unsupported_ =
        code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED || code == JERR_CONVERSION_NOTIMPL;
    info->err->format_message(info, reader->message_);
    longjmp(reader->jump_, 1);
  }
  // Called for warnings (level -1) and trace messages.
  static void on_message(j_common_ptr info, int level) {
    const int code = info->err->msg_code;
    if (level < 0 && (code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE || code == JWRN_ARITH_BAD_CODE ||
                      code == JWRN_MUST_RESYNC))
      on_error(info);
  }
  static void on_output(j_common_ptr) {}
  static void on_progress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans)
      stop(info, "more than 100 scans");
  }
  [[noreturn]] static void stop(j_common_ptr info, const char* message) {
    JpegReader* reader = reinterpret_cast<Errors*>(info->err)->reader;
    std::snprintf(reader->message_, sizeof reader->message_, "%s", message);
    longjmp(reader->jump_, 1);
  }

  static void start_source(j_decompress_ptr) {}
  static void end_source(j_decompress_ptr) {}
  [[noreturn]] static boolean fill_source(j_decompress_ptr info) {
    stop(reinterpret_cast<j_common_ptr>(info), "the file ends before its end marker");
  }
  static void skip_source(j_decompress_ptr info, long n) {
    if (n <= 0) return;
    if (static_cast<unsigned long>(n) > info->src->bytes_in_buffer) fill_source(info);
    info->src->next_input_byte += n;
    info->src->bytes_in_buffer -= static_cast<size_t>(n);
  }

  const Source& source_;
  jpeg_decompress_struct info_{};
  Errors errors_{};
  jpeg_source_mgr input_{};
  jpeg_progress_mgr progress_{};
  jmp_buf jump_;
  bool is_unsupported_ = false;
  char message_[JMSG_LENGTH_MAX] = {};
};

JpegReader::JpegReader(const Source& source) : source_(source) {
  info_.err = jpeg_std_error(&errors_.base);
  errors_.reader = this;
  errors_.base.error_exit = on_error;
  errors_.base.emit_message = on_message;
  errors_.base.output_message = on_output;
  guarded([this] { jpeg_create_decompress(&info_); });
  input_ = {source.data(), source.bytes.size(),    start_source, fill_source,
            skip_source,   jpeg_resync_to_restart, end_source};
  info_.src = &input_;
  progress_.progress_monitor = on_progress;
  info_.progress = &progress_;
}

Header JpegReader::read_header() {
  guarded([this] {
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
  });
  check_size(source_, ImageFormat::kJpeg, info_.image_width, info_.image_height);
  return {static_cast<int>(info_.image_width), static_cast<int>(info_.image_height), orientation(), false,
          false};
}

int JpegReader::orientation() const {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  int from_xmp = 0;
  for (const jpeg_marker_struct* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
    const std::span data(reinterpret_cast<const std::byte*>(marker->data), marker->data_length);
    if (Bytes(data).starts_with(0, kExif))
      if (const int found = exif_orientation(data); found != 0) return found;
    if (from_xmp == 0 && Bytes(data).starts_with(0, kXmp)) from_xmp = xmp_orientation(data);
  }
  return std::max(from_xmp, 1);
}

// One decoded row to RGB, from grey or inverted CMYK.
void convert_row(const std::uint8_t* from, int n_channels, std::uint8_t* to, int width) {
  for (int x = 0; x < width; ++x, from += n_channels, to += 3) {
    if (n_channels == 1)
      put_rgb(to, from[0], from[0], from[0]);
    else
      put_cmyk(to, 255U - from[0], 255U - from[1], 255U - from[2], 255U - from[3]);
  }
}

Image JpegReader::decode() {
  read_header();
  const int n_channels = info_.num_components;
  if (n_channels != 1 && n_channels != 3 && n_channels != 4)
    fail_unsupported(source_, ImageFormat::kJpeg, fmt::format("{} colour components", n_channels));
  if (info_.data_precision != 8)
    fail_unsupported(source_, ImageFormat::kJpeg, fmt::format("{} bits per sample", info_.data_precision));
  // A block of 64 pixels takes at least a bit of Huffman code; with the widest subsampling a component has
  // 1/4 of them.
  // Arithmetic codes adapt to far below a bit; what no encoder reaches is refused there too.
  constexpr std::uint64_t kHuffmanRatio = 2048, kArithmeticRatio = 32768;
  check_ratio(source_, ImageFormat::kJpeg, std::uint64_t{info_.image_width} * info_.image_height,
              source_.bytes.size(), info_.arith_code == FALSE ? kHuffmanRatio : kArithmeticRatio);
  info_.out_color_space = n_channels == 1 ? JCS_GRAYSCALE : (n_channels == 3 ? JCS_RGB : JCS_CMYK);
  guarded([this] { jpeg_start_decompress(&info_); });
  Image image = make_image(source_, ImageFormat::kJpeg, info_.output_width, info_.output_height);
  TRIPTYCH_CHECK(info_.output_components == n_channels);
  std::vector<std::uint8_t> buffer(
      n_channels == 3 ? 0 : image.row_bytes() / 3 * static_cast<std::size_t>(n_channels));
  std::uint8_t* to = image.rgb.data();
  for (int y = 0; y < image.height_px; ++y, to += image.row_bytes()) {
    JSAMPROW row = n_channels == 3 ? to : buffer.data();
    guarded([this, &row] { jpeg_read_scanlines(&info_, &row, 1); });
    if (n_channels != 3) convert_row(row, n_channels, to, image.width_px);
  }
  guarded([this] { jpeg_finish_decompress(&info_); });
  return image;
}

Header probe(const Source& source) { return JpegReader(source).read_header(); }
Image decode(const Source& source) { return JpegReader(source).decode(); }

}  // namespace

const Codec kJpeg{ImageFormat::kJpeg, matches, probe, decode};

}  // namespace triptych::codec
