// GPT-2's byte alphabet: every byte has a printable character, so that a vocabulary of text can hold
// arbitrary bytes. Bytes '!'..'~', 0xA1..0xAC and 0xAE..0xFF stand for themselves, the other 68 for U+0100
// onwards in ascending order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace triptych::byte_level {

/// The pattern that GPT-2 splits text with.
inline constexpr std::string_view kPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Appends each byte's character.
void append_encoded(std::string& out, std::string_view bytes);
/// The character of a byte, as UTF-8.
std::string_view character_of(unsigned char byte);
/// The byte that a character stands for, or -1.
int byte_of(char32_t character) noexcept;
/// The bytes of a string of the alphabet, or nothing when a character is outside of it.
std::optional<std::string> decode(std::string_view text);

}  // namespace triptych::byte_level
