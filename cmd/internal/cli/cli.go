// Package cli has what every command needs: App, with the streams and the common flags; the flags of commands
// that open a database; help, usage and the environment; errors with their exit codes; the version of the
// program.
//
// A command is made by a function of an App and listed as a Command. The core hands its commands to
// App.Assemble; a ring registers its own, and this package does not know the rings. A package of commands
// declares
//
//	type app struct{ *cli.App }
//
// and has its commands as methods. This package has no command.
package cli
