// The page's routes over real sockets: types, conditions, policy, and that all it names is there.
#include "server/web_page.h"

#include <set>

#include "server/test_server.h"

namespace cedra::server {
namespace {

using namespace cedra::server::testing;

std::string header(const Client::Response& response, const std::string& name) {
  const size_t at = response.head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return {};
  const size_t begin = at + name.size() + 4;
  return response.head.substr(begin, response.head.find("\r\n", begin) - begin);
}

Client::Response get(const TestServer& server, const std::string& path) {
  Client client(server);
  client.get(path);
  return client.response();
}

TEST(WebPage, IsServedAtTheRoot) {
  TestServer server;
  const Client::Response page = get(server, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(header(page, "Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(header(page, "Cache-Control"), "no-cache");
  EXPECT_TRUE(page.body.starts_with("<!doctype html>")) << page.body.substr(0, 80);
  EXPECT_TRUE(page.body.ends_with("</html>\n"));
  EXPECT_EQ(get(server, "/?chat=1").body, page.body);
}

TEST(WebPage, TellsTheBrowserToRunNothingElse) {
  TestServer server;
  for (const WebFile& file : web_files()) {
    const Client::Response response = get(server, std::string(file.path));
    const std::string policy = header(response, "Content-Security-Policy");
    EXPECT_TRUE(policy.starts_with("default-src 'self';")) << file.path << ": " << policy;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
    EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos) << policy;
    EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff") << file.path;
  }
}

// Files that a page or module names: href="...", src="...", from './...'.
std::set<std::string> named_in(std::string_view text) {
  std::set<std::string> out;
  for (const auto& [before, end] :
       {std::pair{"href=\"", '"'}, std::pair{"src=\"", '"'}, std::pair{"from './", '\''}}) {
    size_t at = 0;
    while ((at = text.find(before, at)) != std::string_view::npos) {
      at += std::string_view(before).size();
      std::string name(text.substr(at, text.find(end, at) - at));
      if (end == '\'') name.insert(0, "web/");
      out.insert("/" + name);
    }
  }
  return out;
}

TEST(WebPage, HasEveryFileThatItNamesAndNoOther) {
  TestServer server;
  std::set<std::string> named{"/"}, held;
  for (const WebFile& file : web_files()) {
    held.emplace(file.path);
    named.merge(named_in(file.bytes));
    const Client::Response response = get(server, std::string(file.path));
    EXPECT_EQ(response.status, 200) << file.path;
    EXPECT_EQ(response.body, file.bytes) << file.path;
    EXPECT_EQ(header(response, "Content-Type"), file.content_type);
    // The name of SVG's namespace is an address that nobody asks for.
    std::string text(file.bytes);
    const std::string_view svg = R"(xmlns="http://www.w3.org/2000/svg")";
    if (const size_t at = text.find(svg); at != std::string::npos) text.erase(at, svg.size());
    EXPECT_EQ(text.find("http://"), std::string::npos) << file.path;
    EXPECT_EQ(text.find("https://"), std::string::npos) << file.path;
  }
  EXPECT_EQ(named, held);
  EXPECT_EQ(header(get(server, "/web/app.js"), "Content-Type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(header(get(server, "/web/style.css"), "Content-Type"), "text/css; charset=utf-8");
}

TEST(WebPage, HeadHasTheLengthButNoBody) {
  TestServer server;
  Client client(server);
  client.send("HEAD / HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.read_until(R"({"status":"ok"})"));
  const std::string length = std::to_string(get(server, "/").body.size());
  EXPECT_TRUE(client.buffer().starts_with("HTTP/1.1 200 OK\r\n")) << client.buffer();
  EXPECT_NE(client.buffer().find("Content-Length: " + length + "\r\n"), std::string::npos);
  EXPECT_EQ(client.buffer().find("<!doctype"), std::string::npos);
}

TEST(WebPage, SaysNotModifiedToWhomHasIt) {
  TestServer server;
  const Client::Response page = get(server, "/");
  const std::string etag = header(page, "ETag");
  ASSERT_EQ(etag.size(), 34U) << etag;
  EXPECT_NE(etag, header(get(server, "/web/app.js"), "ETag"));
  for (const std::string& tags : {etag, "\"old\", W/" + etag, std::string("*")}) {
    Client client(server);
    client.send("GET / HTTP/1.1\r\nIf-None-Match: " + tags +
                "\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
    ASSERT_TRUE(client.read_until(R"({"status":"ok"})")) << tags;
    EXPECT_TRUE(client.buffer().starts_with("HTTP/1.1 304 Not Modified\r\n")) << client.buffer();
    EXPECT_NE(client.buffer().find("ETag: " + etag), std::string::npos);
    EXPECT_EQ(client.buffer().find("<!doctype"), std::string::npos);
  }
  Client client(server);
  client.send("GET / HTTP/1.1\r\nIf-None-Match: \"old\"\r\n\r\n");
  EXPECT_EQ(client.response().body, page.body);
}

TEST(WebPage, NeedsNoKeyWhereTheApiDoes) {
  TestOptions options;
  options.service.api_keys = {"secret"};
  TestServer server(options);
  EXPECT_EQ(get(server, "/").status, 200);
  EXPECT_EQ(get(server, "/web/app.js").status, 200);
  EXPECT_EQ(get(server, "/v1/models").status, 401);
}

TEST(WebPage, OtherPathsAndMethodsStayJson) {
  TestServer server;
  for (const char* path : {"/web/nope.js", "/web/", "/web", "/index.html", "/v1/", "/web/../app.js",
                           "//", "/web/app.js/"}) {
    const Client::Response response = get(server, path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(header(response, "Content-Type"), "application/json") << path;
    EXPECT_TRUE(response.body.starts_with(R"({"error":)")) << response.body;
  }
  Client client(server);
  client.post("/", "{}");
  const Client::Response response = client.response();
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(header(response, "Allow"), "GET");
  EXPECT_EQ(header(response, "Content-Type"), "application/json");
}

}  // namespace
}  // namespace cedra::server
