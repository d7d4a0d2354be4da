#include "tools/table.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace zero::tools {
namespace {

constexpr std::array<ByteUnit, 6> kUnits = {{{"B", 1},
                                             {"kB", 1000},
                                             {"MB", 1000 * 1000},
                                             {"GB", 1000 * 1000 * 1000},
                                             {"TB", Index{1000} * 1000 * 1000 * 1000},
                                             {"PB", Index{1000} * 1000 * 1000 * 1000 * 1000}}};

std::string joined(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths, std::size_t gap) {
  std::string line = fmt::format("{:<{}}", cells[0], widths[0]);
  for (std::size_t i = 1; i < cells.size(); ++i) line += fmt::format("{:>{}}", cells[i], widths[i] + gap);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string markdown_line(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const std::string& header : headers_) widths.push_back(header.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::size_t rest = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) rest += widths[i];
  const std::size_t gaps = widths.size() - 1;
  const std::size_t gap = widths[0] + rest + 2 * gaps <= kColumns ? 2 : 1;
  const std::size_t taken = rest + gap * gaps;
  const std::size_t most =
      taken + headers_[0].size() < kColumns ? kColumns - taken : std::max<std::size_t>(1, headers_[0].size());
  widths[0] = std::min(widths[0], most);

  std::string text = group_line(widths, gap) + joined(headers_, widths, gap);
  for (std::vector<std::string> row : rows_) {
    if (row[0].size() > widths[0]) row[0] = row[0].substr(0, widths[0] - 1) + "~";
    text += joined(row, widths, gap);
  }
  return text;
}

/// Each name in the middle of a line as wide as its columns.
std::string Table::group_line(const std::vector<std::size_t>& widths, std::size_t gap) const {
  if (groups_.empty()) return "";
  std::string line(widths[0], ' ');
  std::size_t column = 1;
  for (const std::string& name : groups_) {
    std::size_t width = 0;
    for (const std::size_t end = column + columns_of_group(); column < end; ++column) width += widths[column] + gap;
    line += std::string(gap, ' ') + fmt::format("{:-^{}}", " " + name + " ", width - gap);
  }
  return line + "\n";
}

std::string Table::markdown() const {
  std::vector<std::string> head = headers_;
  if (!groups_.empty()) {
    head.assign(headers_.size(), "");
    for (std::size_t g = 0; g < groups_.size(); ++g) head[1 + g * columns_of_group()] = groups_[g];
  }
  std::string text = markdown_line(head) + "|---|";
  for (std::size_t i = 1; i < headers_.size(); ++i) text += "---:|";
  text += "\n";
  if (!groups_.empty()) text += markdown_line(headers_);
  for (std::vector<std::string> row : rows_) {
    for (std::string& cell : row) {
      for (std::size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) cell.insert(at, 1, '\\');
    }
    text += markdown_line(row);
  }
  return text;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (!line.empty()) line += ",";
    if (cell.find_first_of(",\"\n") == std::string::npos) {
      line += cell;
      continue;
    }
    line += '"';
    for (const char c : cell) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

std::string wrapped(const std::string& sentence) {
  std::string text, line;
  std::size_t at = 0;
  while (at < sentence.size()) {
    const std::size_t end = std::min(sentence.find(' ', at), sentence.size());
    const std::string word = sentence.substr(at, end - at);
    if (!line.empty() && line != "  " && line.size() + 1 + word.size() > kColumns) {
      text += line + "\n";
      line = "  ";
    }
    line += (line.empty() || line == "  " ? "" : " ") + word;
    at = end + 1;
  }
  return text + line + "\n";
}

std::string ByteUnit::format(Index count) const {
  if (bytes == 1) return fmt::format("{}", count);
  return fmt::format("{:.2f}", static_cast<double>(count) / static_cast<double>(bytes));
}

ByteUnit unit_for(Index largest) {
  ByteUnit unit = kUnits[0];
  for (const ByteUnit& next : kUnits) {
    if (largest / 10 >= next.bytes) unit = next;
  }
  return unit;
}

std::string in_words(Index bytes) {
  ByteUnit unit = kUnits[0];
  for (const ByteUnit& next : kUnits) {
    if (bytes >= next.bytes) unit = next;
  }
  if (unit.bytes == 1) return fmt::format("{} B", bytes);
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(unit.bytes), unit.name);
}

std::pair<std::string, std::string> in_words(Index one, Index other) {
  std::pair<std::string, std::string> words = {in_words(one), in_words(other)};
  if (words.first == words.second && one != other) {
    words = {fmt::format("{} B", one), fmt::format("{} B", other)};
  }
  return words;
}

std::string counted(Index count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string harmless(const std::string& text, std::size_t longest) {
  std::string safe;
  for (const char c : text.substr(0, longest)) safe += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > longest ? safe + "..." : safe;
}

}  // namespace zero::tools
