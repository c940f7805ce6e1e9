// GIF 87a and 89a with giflib, frame by frame (DGifSlurp would read all frames before any limit is checked).
//
// Transparent pixels and parts of the canvas that no frame covers show the background. As in Pillow, a first
// frame that sticks out of the canvas enlarges it, and a picture without a palette is grey; later frames are
// clipped.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/pixels.h"

namespace triptych::codec {
namespace {

bool matches(std::span<const std::byte> bytes) {
  return Bytes(bytes).starts_with(0, "GIF87a") || Bytes(bytes).starts_with(0, "GIF89a");
}

constexpr std::uint64_t kLzwRatio = 4096;  // one code of 12 bits stands for at most as many pixels

struct Rectangle {
  int left = 0, top = 0, width = 0, height = 0;
};

class GifReader {
 public:
  explicit GifReader(const Source& source);
  ~GifReader() { DGifCloseFile(gif_, nullptr); }
  GifReader(const GifReader&) = delete;
  GifReader& operator=(const GifReader&) = delete;

  /// Goes to the next image descriptor; false at the end of the file.
  bool next_image();
  /// Passes over the pixel data of an image.
  void skip_pixels();
  /// Draws the image over the canvas. Rows behind the last that the canvas shows are passed over.
  void draw(Image& canvas);
  /// What draw() costs, in pixels of a canvas.
  std::uint64_t drawn_pixels(const Image& canvas) const;

  Rectangle frame() const {
    return {gif_->Image.Left, gif_->Image.Top, gif_->Image.Width, gif_->Image.Height};
  }
  const GraphicsControlBlock& control() const { return control_; }
  /// Canvas size, after next_image() found the first image; checked against the limits.
  void canvas_size(int& width_px, int& height_px) const;

 private:
  [[noreturn]] void fail_here() const;
  void read_extension();
  void check_code_size() const;
  void skip_rest();
  int last_visible_row(const Image& canvas) const;
  std::array<Rgb8, 256> palette() const;

  static int read(GifFileType* gif, GifByteType* to, int n) {
    auto* self = static_cast<GifReader*>(gif->UserData);
    const std::size_t left = self->source_.bytes.size() - self->position_;
    const std::size_t taken = std::min(left, static_cast<std::size_t>(std::max(n, 0)));
    std::memcpy(to, self->source_.data() + self->position_, taken);
    self->position_ += taken;
    return static_cast<int>(taken);
  }

  const Source& source_;
  std::size_t position_ = 0;
  GifFileType* gif_ = nullptr;
  GraphicsControlBlock control_{};
};

GifReader::GifReader(const Source& source) : source_(source) {
  int error = 0;
  gif_ = DGifOpen(this, read, &error);
  if (gif_ == nullptr) {
    const char* text = GifErrorString(error);
    fail_damaged(source, ImageFormat::kGif, text == nullptr ? "damaged header" : text);
  }
}

void GifReader::fail_here() const {
  if (position_ >= source_.bytes.size()) fail_damaged(source_, ImageFormat::kGif, "the file is truncated");
  const char* text = GifErrorString(gif_->Error);
  fail_damaged(source_, ImageFormat::kGif, text == nullptr ? "damaged data" : text);
}

// The last byte that giflib reads of a descriptor is the size of its codes; of a wrong one it says nothing.
void GifReader::check_code_size() const {
  if (position_ == 0 || position_ >= source_.bytes.size()) return;
  if (const unsigned bits = source_.data()[position_ - 1]; bits > 8)
    fail_damaged(source_, ImageFormat::kGif,
                 fmt::format("LZW codes that start with {} bits, expected 2 to 8", bits));
}

void GifReader::read_extension() {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(gif_, &code, &block) == GIF_ERROR) fail_here();
  while (block != nullptr) {
    if (code == GRAPHICS_EXT_FUNC_CODE && block[0] == 4) DGifExtensionToGCB(block[0], block + 1, &control_);
    if (DGifGetExtensionNext(gif_, &block) == GIF_ERROR) fail_here();
  }
}

bool GifReader::next_image() {
  control_ = {DISPOSAL_UNSPECIFIED, false, 0, NO_TRANSPARENT_COLOR};
  while (true) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif_, &type) == GIF_ERROR) fail_here();
    if (type == TERMINATE_RECORD_TYPE) return false;
    if (type == EXTENSION_RECORD_TYPE) read_extension();
    if (type != IMAGE_DESC_RECORD_TYPE) continue;
    if (DGifGetImageDesc(gif_) == GIF_ERROR) {
      check_code_size();
      fail_here();
    }
    return true;
  }
}

void GifReader::skip_pixels() {
  int code_size = 0;
  GifByteType* block = nullptr;
  if (DGifGetCode(gif_, &code_size, &block) == GIF_ERROR) fail_here();
  while (block != nullptr)
    if (DGifGetCodeNext(gif_, &block) == GIF_ERROR) fail_here();
}

// Of an image whose first rows were read.
void GifReader::skip_rest() {
  GifByteType* block = nullptr;
  do {
    if (DGifGetCodeNext(gif_, &block) == GIF_ERROR) fail_here();
  } while (block != nullptr);
}

void GifReader::canvas_size(int& width_px, int& height_px) const {
  const Rectangle r = frame();
  width_px = std::max(gif_->SWidth, r.left + r.width);
  height_px = std::max(gif_->SHeight, r.top + r.height);
  const auto width = static_cast<std::uint64_t>(width_px);
  const auto height = static_cast<std::uint64_t>(height_px);
  check_size(source_, ImageFormat::kGif, width, height);
  check_ratio(source_, ImageFormat::kGif, width * height, source_.bytes.size(), kLzwRatio);
}

std::array<Rgb8, 256> GifReader::palette() const {
  const ColorMapObject* map = gif_->Image.ColorMap != nullptr ? gif_->Image.ColorMap : gif_->SColorMap;
  std::array<Rgb8, 256> colours{};
  for (std::size_t i = 0; i < colours.size(); ++i) {
    if (map == nullptr) {
      const auto grey = static_cast<std::uint8_t>(i);
      colours[i] = {grey, grey, grey};
    } else if (i < static_cast<std::size_t>(map->ColorCount)) {
      colours[i] = {map->Colors[i].Red, map->Colors[i].Green, map->Colors[i].Blue};
    }
  }
  return colours;
}

int GifReader::last_visible_row(const Image& canvas) const {
  const Rectangle r = frame();
  return std::clamp(r.left < canvas.width_px ? canvas.height_px - r.top : 0, 0, r.height) - 1;
}

std::uint64_t GifReader::drawn_pixels(const Image& canvas) const {
  // No encoder makes frames larger than the canvas: pixels that are decoded and not shown weigh more than
  // others.
  constexpr std::uint64_t kHiddenWeight = 16;
  const Rectangle r = frame();
  const int last = last_visible_row(canvas);
  // Odd rows come last in an interlaced image: if one of them is visible nearly all is read.
  const int n_rows = gif_->Image.Interlace && last >= 0 ? r.height : last + 1;
  const std::uint64_t read = static_cast<std::uint64_t>(r.width) * static_cast<std::uint64_t>(n_rows);
  const std::uint64_t shown =
      static_cast<std::uint64_t>(canvas.width_px) * static_cast<std::uint64_t>(canvas.height_px);
  return read <= shown ? shown : shown + kHiddenWeight * (read - shown);
}

void GifReader::draw(Image& canvas) {
  const Rectangle r = frame();
  const int last_row = last_visible_row(canvas);
  if (r.width == 0 || last_row < 0) return skip_pixels();
  const auto width = static_cast<std::uint64_t>(r.width);
  const auto height = static_cast<std::uint64_t>(r.height);
  check_size(source_, ImageFormat::kGif, width, height);
  check_ratio(source_, ImageFormat::kGif, width * height, source_.bytes.size(), kLzwRatio);
  const std::array<Rgb8, 256> colours = palette();
  std::vector<GifPixelType> line(static_cast<std::size_t>(r.width));
  const auto read_line = [&](int row) {
    if (DGifGetLine(gif_, line.data(), r.width) == GIF_ERROR) fail_here();
    const int y = r.top + row;
    if (y >= canvas.height_px || r.left >= canvas.width_px) return;
    std::uint8_t* to = canvas.rgb.data() + static_cast<std::size_t>(y) * canvas.row_bytes() +
                       static_cast<std::size_t>(r.left) * 3;
    const int visible = std::min(r.width, canvas.width_px - r.left);
    for (int x = 0; x < visible; ++x, to += 3) {
      const GifPixelType index = line[static_cast<std::size_t>(x)];
      if (index != control_.TransparentColor)
        put_rgb(to, colours[index].r, colours[index].g, colours[index].b);
    }
  };
  struct Pass {
    int first, step;
  };
  constexpr Pass kInterlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  if (!gif_->Image.Interlace) {
    for (int row = 0; row <= last_row; ++row) read_line(row);
    if (last_row + 1 < r.height) skip_rest();
  } else {
    for (const Pass pass : kInterlaced)
      for (int row = pass.first; row < r.height; row += pass.step) read_line(row);
  }
}

void fill(Image& canvas, Rectangle r, Rgb8 colour) {
  const int right = std::min(canvas.width_px, r.left + r.width);
  const int bottom = std::min(canvas.height_px, r.top + r.height);
  for (int y = r.top; y < bottom; ++y)
    for (int x = r.left; x < right; ++x)
      put_rgb(canvas.rgb.data() + static_cast<std::size_t>(y) * canvas.row_bytes() +
                  static_cast<std::size_t>(x) * 3,
              colour.r, colour.g, colour.b);
}

Image empty_canvas(const Source& source, const GifReader& reader) {
  int width_px = 0, height_px = 0;
  reader.canvas_size(width_px, height_px);
  Image canvas = make_image(source, ImageFormat::kGif, static_cast<std::uint64_t>(width_px),
                            static_cast<std::uint64_t>(height_px));
  fill(canvas, {0, 0, width_px, height_px}, source.background);
  return canvas;
}

Header probe(const Source& source) {
  GifReader reader(source);
  if (!reader.next_image()) fail_damaged(source, ImageFormat::kGif, "it holds no image");
  Header header;
  reader.canvas_size(header.width_px, header.height_px);
  header.has_alpha = reader.control().TransparentColor != NO_TRANSPARENT_COLOR;
  try {
    reader.skip_pixels();
    header.is_animated = reader.next_image();
  } catch (const Error&) {  // what comes after the first image is not needed
  }
  return header;
}

Image decode(const Source& source) {
  GifReader reader(source);
  if (!reader.next_image()) fail_damaged(source, ImageFormat::kGif, "it holds no image");
  Image canvas = empty_canvas(source, reader);
  reader.draw(canvas);
  return canvas;
}

std::vector<Frame> decode_animation(const Source& source, const FrameChoice& choice) {
  GifReader reader(source);
  std::vector<Frame> frames;
  FrameCount count;
  Image canvas;
  std::size_t index = 0;
  for (; !choice.is_past(index) && reader.next_image(); ++index) {
    if (index == 0) canvas = empty_canvas(source, reader);
    const bool is_kept = choice.has(index);
    count.add(static_cast<std::uint64_t>(canvas.width_px) * static_cast<std::uint64_t>(canvas.height_px),
              reader.drawn_pixels(canvas), is_kept);
    check_frames(source, ImageFormat::kGif, count);
    std::optional<Image> before;
    if (reader.control().DisposalMode == DISPOSE_PREVIOUS) before = canvas;
    reader.draw(canvas);
    if (is_kept) frames.push_back({canvas, reader.control().DelayTime * 10});
    if (before.has_value())
      canvas = std::move(*before);
    else if (reader.control().DisposalMode == DISPOSE_BACKGROUND)
      fill(canvas, reader.frame(), source.background);
  }
  if (index == 0) fail_damaged(source, ImageFormat::kGif, "it holds no image");
  return frames;
}

std::vector<int> durations_ms(const Source& source) {
  GifReader reader(source);
  std::vector<int> out;
  while (reader.next_image()) {
    check_frames(source, ImageFormat::kGif, {.n_drawn = out.size() + 1});
    out.push_back(reader.control().DelayTime * 10);
    reader.skip_pixels();
  }
  if (out.empty()) fail_damaged(source, ImageFormat::kGif, "it holds no image");
  return out;
}

}  // namespace

const Codec kGif{ImageFormat::kGif, matches, probe, decode, durations_ms, decode_animation};

}  // namespace triptych::codec
