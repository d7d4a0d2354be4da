# [text](#heading) becomes text, and [text](page.md#heading) becomes [text](page.md).
s/\[([^][]*)\]\(#[^)]*\)/\1/g
s/(\]\([^)#]*\.md)#[^)]*\)/\1)/g
