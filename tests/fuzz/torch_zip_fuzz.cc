// The reader of PyTorch files on arbitrary bytes: as an archive when they begin like one, else as the pickle
// inside a sound archive with two storages, which reaches the pickle reader and the tensor checks far more
// often.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "io/torch_zip.h"
#include "only_errors.h"
#include "support/zip_bytes.h"
#include "touch_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  std::string archive(reinterpret_cast<const char*>(data), size);
  if (archive.rfind("PK", 0) != 0)
    archive = test::zip(
        {{"m/data.pkl", archive}, {"m/data/0", std::string(64, '\1')}, {"m/data/1", std::string(24, '\2')}});
  return fuzz::only_errors([&] {
    const WeightTable table = read_torch_zip(std::as_bytes(std::span(archive)), nullptr, "fuzz");
    fuzz::touch(table);
  });
}
