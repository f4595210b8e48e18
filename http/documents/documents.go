// Package documents describes the API for programs: OpenAPI has what is served over HTTP,
// AsyncAPI the frames of the WebSocket.
//
// A row of the route table has one in operations (operation.go), with all its answers and
// refusals; fields, parameters and headers are in components.json, frames and close codes in
// asyncapi.go. Tests hold every exchange against the documents, and -update writes the page
// "api" from them.
package documents

import (
	nethttp "net/http"
	"strconv"
	"sync"

	"relay/http"
)

// Routes returns the endpoints at which a relay of a version shows its documents. table is
// called with the first request, and returns all rows of the relay's route table.
func Routes(table func() []http.Route, version string) []http.Route {
	open := show(func() []byte { return OpenAPI(table(), version) })
	async := show(func() []byte { return AsyncAPI(version) })
	return []http.Route{
		{Method: "GET", Path: "/openapi.json", Who: http.Anyone, Handle: http.Open(open),
			Doc: "this API as an OpenAPI 3.1 document"},
		{Method: "GET", Path: "/asyncapi.json", Who: http.Anyone, Handle: http.Open(async),
			Doc: "the frames of the WebSocket as an AsyncAPI 3.0 document"},
	}
}

// show answers with a document, which is made once.
func show(document func() []byte) nethttp.HandlerFunc {
	document = sync.OnceValue(document)
	return func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		text := document()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.Write(text) // an error means that the client has gone
	}
}
