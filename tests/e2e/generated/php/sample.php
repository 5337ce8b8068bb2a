<?php

// The calls of a client that OpenAPI Generator makes for PHP. Debian's package puts Guzzle on the include path.
use OpenAPI\Client\Api\EventsApi;
use OpenAPI\Client\Api\MessagesApi;
use OpenAPI\Client\ApiException;
use OpenAPI\Client\Configuration;
use OpenAPI\Client\Model\TextContent;
use OpenAPI\Client\Model\TextMessage;

require 'GuzzleHttp/autoload.php';
spl_autoload_register(function (string $class): void {
    $path = __DIR__ . '/client/lib/' . str_replace(['OpenAPI\\Client\\', '\\'], ['', '/'], $class) . '.php';
    if (is_file($path)) {
        require $path;
    }
});

$configuration = (new Configuration())->setHost(getenv('BASE_URL'))->setAccessToken(getenv('API_KEY'));
$http = new GuzzleHttp\Client();

$messages = new MessagesApi($http, $configuration);
$text = new TextMessage([
    'from' => getenv('FROM'),
    'to' => getenv('CUSTOMER'),
    'type' => 'text',
    'text' => new TextContent(['body' => 'Hello']),
]);
$sent = $messages->sendMessage($text, getenv('KEY'));
$repeated = $messages->sendMessage($text, getenv('KEY'));

$refused = null;
try {
    $messages->sendMessage($text->setFrom('nobody'));
} catch (ApiException $error) {
    $refused = $error->getCode();
}

$events = new EventsApi($http, $configuration);
$first = $events->listEvents(limit: 1);
$next = $events->listEvents(limit: 1, cursor: $first->getNextCursor());

// The generated classes of events have no variants, so the sample reads an event as JSON.
$event = json_decode(getenv('EVENT'), true);

echo json_encode([
    'wamid' => $sent->getMessages()[0]->getId(),
    'repeated' => $repeated->getMessages()[0]->getId(),
    'refused' => $refused,
    'events' => [$first->getData()[0]->getId(), $next->getData()[0]->getId()],
    'received' => $event['data']['message']['text']['body'],
]);
