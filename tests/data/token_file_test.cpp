#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/data/batches.h"
#include "tests/support/scratch.h"

namespace zero {
namespace {

using testing::Scratch;

std::string little_endian(std::int64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

/// A token file with this header and these tokens.
std::string token_file(std::int64_t magic, std::int64_t version, std::int64_t count, const std::vector<int>& tokens) {
  std::string out = little_endian(magic, 4) + little_endian(version, 4) + little_endian(count, 4);
  out.resize(1024);
  for (const int token : tokens) out += little_endian(token, 2);
  return out;
}

std::vector<int> counting(int n) {
  std::vector<int> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::vector<std::int32_t> read_all(const TokenFile& file) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(file.size()));
  file.read(0, out);
  return out;
}

/// The sentence with which a file is refused.
std::string refusal(const std::string& path, Index context = 4, Index vocab = 256) {
  try {
    const TokenFile file(path, context, vocab);
  } catch (const UnusableInput& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refusal(const std::string& path, const std::string& words, Index context = 4, Index vocab = 256) {
  const std::string sentence = refusal(path, context, vocab);
  EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
  EXPECT_NE(sentence.find(path), std::string::npos) << "the sentence names the file: " << sentence;
  EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
}

TEST(TokenFile, RefusesWhatIsNotARegularFileWithTokens) {
  const Scratch scratch;
  expect_refusal(scratch.path("missing.txt"), "No such file");
  expect_refusal(scratch.path(), "is a directory");
  expect_refusal(scratch.write("empty.txt", ""), "is empty");
  expect_refusal(scratch.write("empty.bin", ""), "is empty");
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_refusal(pipe, "not a regular file");  // at once: it does not wait for a writer
}

TEST(TokenFile, NeedsOneTokenMoreThanASequence) {
  const Scratch scratch;
  expect_refusal(scratch.write("one.txt", "a"), "has 1 token; --context 4 needs at least 5");
  expect_refusal(scratch.write("short.txt", "abcd"), "has 4 tokens; --context 4 needs at least 5");
  EXPECT_EQ(TokenFile(scratch.write("enough.txt", "abcde"), 4, 256).size(), 5);
}

TEST(TokenFile, NamesPositionAndValueOfATokenThatIsNotBelowTheVocabulary) {
  const Scratch scratch;
  std::string text(100'000, 'A');  // more than a block, so that positions count over blocks
  text[70'001] = 'z';
  expect_refusal(scratch.write("high.txt", text), "the byte 122 at position 70001", 4, 122);
  EXPECT_EQ(refusal(scratch.path("high.txt"), 4, 123), "accepted");

  std::vector<int> tokens(40'000, 60);
  const auto write = [&] { return scratch.write("high.bin", token_file(20240520, 1, 40'000, tokens)); };
  EXPECT_EQ(refusal(write(), 4, 61), "accepted");
  tokens[33'333] = 61;
  expect_refusal(write(), "the token 61 at position 33333", 4, 61);
  tokens[33'333] = 65'535;
  expect_refusal(write(), "the token 65535 at position 33333", 4, 61);
  expect_refusal(write(), "--vocab 50257", 4, 50'257);
}

TEST(TokenFile, ReadsTokensOfABinFile) {
  const Scratch scratch;
  const TokenFile file(scratch.write("good.bin", token_file(20240520, 1, 50'000, counting(50'000))), 4, 50'000);
  ASSERT_EQ(file.size(), 50'000);
  const std::vector<std::int32_t> all = read_all(file);
  for (std::int32_t i = 0; i < 50'000; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i);
  std::vector<std::int32_t> middle(3);
  file.read(16'383, middle);  // across the end of a block
  EXPECT_EQ(middle, (std::vector<std::int32_t>{16'383, 16'384, 16'385}));
}

TEST(TokenFile, RefusesEveryDamageOfABinFile) {
  const Scratch scratch;
  const std::vector<int> tokens = counting(10);
  const auto damaged = [&](const std::string& contents, const std::string& words) {
    expect_refusal(scratch.write("bad.bin", contents), words);
  };
  const std::string good = token_file(20240520, 1, 10, tokens);
  EXPECT_EQ(refusal(scratch.write("bad.bin", good)), "accepted");
  damaged(good.substr(0, 1), "too short (1)");
  damaged(good.substr(0, 1023), "too short (1023)");
  damaged(good.substr(0, 1024), "is damaged");
  damaged(good.substr(0, good.size() - 1), "is damaged");
  damaged(good.substr(0, good.size() - 2), "is damaged");
  damaged(good + "x", "is damaged");
  damaged(good + "xy", "is damaged");
  damaged(token_file(20240522, 1, 10, tokens), "magic number is 20240522");
  damaged(token_file(0, 1, 10, tokens), "magic number is 0");
  damaged(std::string(2000, 'a'), "not a token file");
  damaged(token_file(20240520, 2, 10, tokens), "has version 2");
  damaged(token_file(20240520, 0, 10, tokens), "has version 0");
  damaged(token_file(20240520, 1, 11, tokens), "says 11 tokens");
  damaged(token_file(20240520, 1, -1, tokens), "says -1 tokens");
  damaged(token_file(20240520, 1, 0x7fffffff, tokens), "says 2147483647 tokens");
  damaged(token_file(20240520, 1, 0, {}), "has 0 tokens");
}

TEST(TokenFile, TakesEveryByteOfTextAsItIs) {
  const Scratch scratch;
  std::string all_bytes;
  for (int b = 0; b < 256; ++b) all_bytes += static_cast<char>(b);
  const std::vector<std::string> texts = {
      all_bytes,
      std::string("a\0b\0c\0", 6),
      "one\r\ntwo\r\n",
      "\xff\xfe" + std::string("h\0i\0!\0", 6),  // UTF-16 with its mark
      "\xef\xbb\xbfwith a mark",
      "it\x92s Latin-1",
      "cut emoji \xf0\x9f\x98",
      "\n\n\n\n\n\n",
      std::string(3'000'000, 'x'),  // one long line
  };
  for (const std::string& text : texts) {
    const TokenFile file(scratch.write("text.txt", text), 4, 256);
    ASSERT_EQ(file.size(), static_cast<Index>(text.size()));
    const std::vector<std::int32_t> tokens = read_all(file);
    for (std::size_t i = 0; i < text.size(); ++i) ASSERT_EQ(tokens[i], static_cast<unsigned char>(text[i])) << i;
  }
}

TEST(TokenFile, FailsWhenTheFileShrinksOrChangesWhileItIsOpen) {
  const Scratch scratch;
  const std::string path = scratch.write("text.txt", std::string(1000, 'a'));
  const TokenFile file(path, 4, 128);
  std::vector<std::int32_t> tokens(10);
  file.read(990, tokens);

  scratch.write("text.txt", std::string(990, 'a') + std::string(10, '\xf0'));
  EXPECT_THROW(file.read(990, tokens), ResourceFailure) << "a token above the vocabulary must not reach the tables";
  file.read(980, tokens);

  std::filesystem::resize_file(path, 995);
  try {
    file.read(990, tokens);
    FAIL() << "half a sequence was read";
  } catch (const ResourceFailure& error) {
    EXPECT_NE(std::string(error.what()).find("has shrunk"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace zero
