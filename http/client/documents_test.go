package client_test

import (
	"relay/http"
	"relay/http/apitest"
	"relay/http/documents"
)

// All tests of this package hold what a relay answers against the documents.
func init() {
	apitest.Describe(func() (open, async []byte) {
		return documents.OpenAPI(http.Routes(), "test"), documents.AsyncAPI("test")
	})
}
