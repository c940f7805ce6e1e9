// The protobuf wire format as far as a ModelProto needs it: varints, 32-bit values, byte strings, unknown
// fields skipped. Source: protobuf.dev/programming-guides/encoding.
#include <bit>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "text/sentencepiece_file.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxPieces = 1 << 22;
constexpr std::size_t kMaxPieceBytes = 1024;

class WireReader {
 public:
  WireReader(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  struct Field {
    std::uint32_t number = 0;
    std::uint32_t wire_type = 0;
    std::uint64_t value = 0;   // types 0, 1, 5
    std::string_view payload;  // type 2
  };

  std::optional<Field> next() {
    if (at_ >= bytes_.size()) return std::nullopt;
    const std::uint64_t key = varint();
    Field field;
    field.wire_type = static_cast<std::uint32_t>(key & 7);
    if ((key >> 3) == 0 || (key >> 3) > 0x1FFFFFFF) bad("a bad field number");
    field.number = static_cast<std::uint32_t>(key >> 3);
    switch (field.wire_type) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.payload = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        bad("an unknown wire type");
    }
    return field;
  }

  [[noreturn]] void bad(std::string_view what) const {
    fail(ErrorCode::kInvalidFile, "{}: not a SentencePiece model: {} at byte {}", where_, what, at_);
  }

 private:
  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_) bad("a field longer than the file");
    const std::string_view out = bytes_.substr(at_, static_cast<std::size_t>(n));
    at_ += static_cast<std::size_t>(n);
    return out;
  }
  std::uint64_t varint() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) bad("the end of the file inside a number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      out |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return out;
    }
    bad("a number of more than ten bytes");
  }
  std::uint64_t fixed(std::size_t n) {
    const std::string_view bytes = take(n);
    std::uint64_t out = 0;
    for (std::size_t k = 0; k < n; ++k)
      out |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[k])) << (8 * k);
    return out;
  }

  std::string_view bytes_;
  std::string_view where_;
  std::size_t at_ = 0;
};

SentencePieceProto::Piece parse_piece(std::string_view bytes, std::string_view where) {
  SentencePieceProto::Piece piece;
  WireReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->wire_type == 2) {
      piece.text = field->payload;
    } else if (field->number == 2 && field->wire_type == 5) {
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
    } else if (field->number == 3 && field->wire_type == 0) {
      if (field->value < 1 || field->value > 6) reader.bad("a piece of unknown type");
      piece.type = static_cast<SentencePieceProto::Type>(field->value);
    }
  }
  return piece;
}

void parse_trainer(std::string_view bytes, std::string_view where, SentencePieceProto& proto) {
  WireReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->wire_type != 0) continue;
    const auto id = static_cast<std::int32_t>(static_cast<std::int64_t>(field->value));
    switch (field->number) {
      case 3:
        if (field->value != 1 && field->value != 2)
          fail(ErrorCode::kUnsupported, "{}: model_type {} is not supported: expected UNIGRAM or BPE", where,
               field->value == 3   ? "WORD"
               : field->value == 4 ? "CHAR"
                                   : "unknown");
        proto.is_bpe = field->value == 2;
        break;
      case 24:
        proto.treat_whitespace_as_suffix = field->value != 0;
        break;
      case 35:
        proto.byte_fallback = field->value != 0;
        break;
      case 40:
        proto.unk_id = id;
        break;
      case 41:
        proto.bos_id = id;
        break;
      case 42:
        proto.eos_id = id;
        break;
      case 43:
        proto.pad_id = id;
        break;
      default:
        break;
    }
  }
}

void parse_normalizer_spec(std::string_view bytes, std::string_view where, SentencePieceProto& proto) {
  WireReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->number == 2 && field->wire_type == 2) proto.charsmap = field->payload;
    if (field->wire_type != 0) continue;
    if (field->number == 3) proto.add_dummy_prefix = field->value != 0;
    if (field->number == 4) proto.remove_extra_whitespaces = field->value != 0;
    if (field->number == 5) proto.escape_whitespaces = field->value != 0;
  }
}

void check_pieces(const SentencePieceProto& proto, std::string_view where) {
  using Type = SentencePieceProto::Type;
  std::unordered_set<std::string_view> seen;
  std::size_t n_unknown = 0;
  std::size_t n_bytes = 0;
  for (std::size_t i = 0; i < proto.pieces.size(); ++i) {
    const auto& piece = proto.pieces[i];
    const auto bad = [&](std::string_view what) {
      fail(ErrorCode::kInvalidFile, "{}: piece {}: {}", where, i, what);
    };
    if (piece.text.empty()) bad("it is empty");
    if (piece.text.size() > kMaxPieceBytes || piece.text.find('\0') != std::string::npos ||
        !utf8::is_valid(piece.text))
      bad("not UTF-8, with a zero byte, or too long");
    if (!std::isfinite(piece.score)) bad("its score is not finite");
    if (!seen.insert(piece.text).second) bad("it stands there twice");
    if (piece.type == Type::kUnknown) ++n_unknown;
    if (piece.type == Type::kByte) {
      ++n_bytes;
      if (!proto.byte_fallback) bad("a byte, but byte_fallback is off");
    }
  }
  if (n_unknown != 1) fail(ErrorCode::kInvalidFile, "{}: {} unknown pieces, expected one", where, n_unknown);
  if (!proto.byte_fallback) return;
  for (unsigned b = 0; b < 256; ++b)
    if (!seen.contains(fmt::format("<0x{:02X}>", b)))
      fail(ErrorCode::kInvalidFile, "{}: byte_fallback without a piece <0x{:02X}>", where, b);
  if (n_bytes != 256) fail(ErrorCode::kInvalidFile, "{}: {} byte pieces, expected 256", where, n_bytes);
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
}
void put_number(std::string& out, std::uint32_t field, std::int64_t value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3);
  put_varint(out, static_cast<std::uint64_t>(value));
}
void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_varint(out, (static_cast<std::uint64_t>(field) << 3) | 2);
  put_varint(out, bytes.size());
  out.append(bytes);
}
void put_float(std::string& out, std::uint32_t field, float value) {
  put_varint(out, (static_cast<std::uint64_t>(field) << 3) | 5);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int k = 0; k < 4; ++k) out.push_back(static_cast<char>((bits >> (8 * k)) & 0xFF));
}

}  // namespace

SentencePieceProto SentencePieceProto::parse(std::string_view bytes, std::string_view where) {
  SentencePieceProto proto;
  WireReader reader(bytes, where);
  while (const auto field = reader.next()) {
    if (field->wire_type != 2) continue;
    if (field->number == 1) {
      if (proto.pieces.size() >= kMaxPieces) reader.bad("too many pieces");
      proto.pieces.push_back(parse_piece(field->payload, where));
    } else if (field->number == 2) {
      parse_trainer(field->payload, where, proto);
    } else if (field->number == 3) {
      parse_normalizer_spec(field->payload, where, proto);
    }
  }
  check_pieces(proto, where);
  const auto count = static_cast<std::int64_t>(proto.pieces.size());
  for (std::int32_t* id : {&proto.bos_id, &proto.eos_id, &proto.pad_id})
    if (*id < 0 || *id >= count || proto.pieces[static_cast<std::size_t>(*id)].type != Type::kControl)
      *id = -1;
  for (std::size_t i = 0; i < proto.pieces.size(); ++i)
    if (proto.pieces[i].type == Type::kUnknown) proto.unk_id = static_cast<std::int32_t>(i);
  return proto;
}

std::string SentencePieceProto::serialize() const {
  std::string out;
  std::string part;
  for (const Piece& piece : pieces) {
    part.clear();
    put_bytes(part, 1, piece.text);
    put_float(part, 2, piece.score);
    put_number(part, 3, static_cast<std::int64_t>(piece.type));
    put_bytes(out, 1, part);
  }
  part.clear();
  put_number(part, 3, is_bpe ? 2 : 1);
  put_number(part, 24, treat_whitespace_as_suffix ? 1 : 0);
  put_number(part, 35, byte_fallback ? 1 : 0);
  put_number(part, 40, unk_id);
  put_number(part, 41, bos_id);
  put_number(part, 42, eos_id);
  put_number(part, 43, pad_id);
  put_bytes(part, 45, pieces[static_cast<std::size_t>(unk_id)].text);
  put_bytes(out, 2, part);
  part.clear();
  put_bytes(part, 1, "identity");
  put_number(part, 3, add_dummy_prefix ? 1 : 0);
  put_number(part, 4, remove_extra_whitespaces ? 1 : 0);
  put_number(part, 5, escape_whitespaces ? 1 : 0);
  put_bytes(out, 3, part);
  return out;
}

}  // namespace triptych
