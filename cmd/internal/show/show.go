// Package show is how the program looks to a person: screens, on which the words of
// others cannot steer a terminal, tables, colours, progress, and the forms of times,
// sizes and counts. It prints to the streams that it is given and knows neither
// commands nor flags. What programs read is JSON, by JSON and Indented.
package show
