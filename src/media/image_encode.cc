// PNG with libpng. It reports a fault by longjmp, so the steps between setjmp and the last call own nothing.
#include "media/image_encode.h"

#include <png.h>
#include <setjmp.h>

#include <cstring>
#include <new>

#include "base/error.h"

namespace triptych {
namespace {

constexpr int kMaxSidePx = 1'000'000;  // PNG_USER_WIDTH_MAX

class PngWriter {
 public:
  PngWriter() {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_write_struct(&png_, nullptr);
      fail(ErrorCode::kOutOfMemory, "PNG: libpng could not start");
    }
  }
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  std::vector<std::byte> encode(const Image& image) {
    if (setjmp(jump_) == 0)
      write(image);
    else
      fail(out_of_memory_ ? ErrorCode::kOutOfMemory : ErrorCode::kInternal, "PNG: {}", message_);
    return std::move(bytes_);
  }

 private:
  void write(const Image& image) {
    png_set_write_fn(png_, this, on_write, on_flush);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(image.width_px),
                 static_cast<png_uint_32>(image.height_px), 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    const std::uint8_t* row = image.rgb.data();
    for (int y = 0; y < image.height_px; ++y, row += image.row_bytes()) png_write_row(png_, row);
    png_write_end(png_, info_);
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngWriter*>(png_get_error_ptr(png));
    std::strncpy(self->message_, message, sizeof self->message_ - 1);
    longjmp(self->jump_, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_write(png_structp png, png_bytep from, size_t n) {
    auto* self = static_cast<PngWriter*>(png_get_io_ptr(png));
    if (!self->append(from, n)) png_error(png, "no memory for the encoded picture");
  }
  static void on_flush(png_structp) {}
  // An exception must not pass through libpng.
  bool append(const png_byte* from, size_t n) noexcept try {
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + n);
    return true;
  } catch (const std::bad_alloc&) {
    out_of_memory_ = true;
    return false;
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<std::byte> bytes_;
  bool out_of_memory_ = false;
  jmp_buf jump_;
  char message_[160] = {};
};

}  // namespace

std::vector<std::byte> encode_png(const Image& image) {
  TRIPTYCH_CHECK(image.width_px > 0 && image.height_px > 0 &&
                     image.rgb.size() == image.row_bytes() * static_cast<std::size_t>(image.height_px),
                 "a picture without pixels");
  if (image.width_px > kMaxSidePx || image.height_px > kMaxSidePx)
    fail(ErrorCode::kInvalidArgument, "PNG: a picture of {}x{} pixels; each side may have at most {}",
         image.width_px, image.height_px, kMaxSidePx);
  return PngWriter().encode(image);
}

}  // namespace triptych
