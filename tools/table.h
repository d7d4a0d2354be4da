#pragma once
/// \file
/// Tables and sentences of at most 100 columns, as text, Markdown and CSV.

#include <string>
#include <vector>

#include "common/base/types.h"

namespace zero::tools {

inline constexpr std::size_t kColumns = 100;  ///< the widest line

/// Cells under headers; the first column is aligned to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}
  /// As many cells as there are headers.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// Puts a row of names above the headers, each over as many columns as the others; the first column has none. In
  /// Markdown, which has one row of headers, the names are that row and the headers the first below it.
  void group_columns(std::vector<std::string> names) { groups_ = std::move(names); }

  /// Lines of at most kColumns columns: a first column that is too long is cut and ends in `~`.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string markdown() const;

 private:
  [[nodiscard]] std::size_t columns_of_group() const { return (headers_.size() - 1) / groups_.size(); }
  [[nodiscard]] std::string group_line(const std::vector<std::size_t>& widths, std::size_t gap) const;

  std::vector<std::string> headers_, groups_;
  std::vector<std::vector<std::string>> rows_;
};

/// One line of CSV (RFC 4180) with its newline.
std::string csv_line(const std::vector<std::string>& cells);

/// Words on lines of at most kColumns columns, all but the first indented by two; ends in a newline.
std::string wrapped(const std::string& sentence);

/// The unit of all byte counts of a table, chosen once: decimal (GB = 1e9), as in the paper.
struct ByteUnit {
  const char* name;  ///< "MB"
  Index bytes;
  /// Two digits after the point; whole numbers of bytes.
  [[nodiscard]] std::string format(Index count) const;
};

/// The unit in which `largest` has at least two digits before the point.
ByteUnit unit_for(Index largest);

/// "1.7 MB": for sentences, in the unit that suits the number.
std::string in_words(Index bytes);

/// Two sizes for a sentence; when they look equal but are not, in bytes.
std::pair<std::string, std::string> in_words(Index one, Index other);

/// "3 ranks", "1 rank".
std::string counted(Index count, const std::string& noun);

/// Text from outside made harmless for a terminal and a line: what is not printable ASCII becomes `?`, a long one is
/// cut.
std::string harmless(const std::string& text, std::size_t longest = 200);

}  // namespace zero::tools
